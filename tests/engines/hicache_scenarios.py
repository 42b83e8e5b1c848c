"""Scenarios of HiCache over one machine."""

from kvcache_sim.simulation import RunOptions

CHECKED = RunOptions(check="full")
#: The write policies of scenarios and SGLang's names of them.
WRITES = {"back": "write_back", "through": "write_through", "selective": "write_through_selective"}


def scenario(
    capacities: tuple[int | None, ...],
    policy: str,
    write: str,
    block: int,
    fetch: str = "",
    lookahead: str = "",
) -> str:
    """Return a scenario of two tiers, or of three with a storage; ``fetch`` and ``lookahead`` are of a storage."""
    tiers = [
        f"{name}: {{capacity: {'unbounded' if pages is None else f'{pages} blocks'}"
        for name, pages in zip(("gpu", "cpu", "disk"), capacities, strict=False)
    ]
    tiers[1] += ", semantics: hicache"
    below = f"fetch: {{{fetch}}}\nprefetch: {{policy: queued, {lookahead}}}\n" if len(capacities) > 2 else ""
    return (
        f"cache: {{block_size: {block}, policy: {policy}}}\ntiers: {{{'}, '.join(tiers)}}}}}\n"
        f"write: {{policy: {write}}}\n{below}"
    )
