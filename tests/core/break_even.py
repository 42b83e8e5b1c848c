"""The break-even length of fetching against recomputing, in closed form."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchCosts:
    """Times to load and to compute a prefix on an idle machine, per block and once, in ns.

    ``residual_ns``: the step that computes what follows the prefix, alone. ``load_ns_per_block``: the
    channel's
    occupation, the larger of bytes / bandwidth and layers · overhead; a multiple of ``layers`` is exact.
    ``submit_ns_per_block``: the CPU's time to submit a block's pieces, all of them before the first byte.
    """

    latency_ns: int
    load_ns_per_block: int
    compute_ns_per_block: int
    residual_ns: int
    layers: int
    pipelining: bool = True
    submit_ns_per_block: int = 0


def break_even_blocks(costs: FetchCosts) -> tuple[int, int | None] | None:
    """Return the lengths (from, to) in blocks at which loading ends no later than recomputing.

    ``to`` is None where there is no upper bound; None: recomputing always ends earlier. With latency a, load
    and compute time m and q of a block, the rest C and L layers, k blocks are recomputed by k·q + C. Loaded,
    they end at a + k·m + C without pipelining, and with it at max(a + k·m/L + C, a + k·m + C/L) (semantics 4:
    C starts at the first layer's arrival and ends at least one layer after the last one's). Submitting s a
    block
    first makes all of these k·s later, as if a block were computed in q − s. Solved for k, with r = q − s:

        k ≥ a / (r − m)                                                 without pipelining,
        k ≥ a / (r − m/L)  and  k · (r − m) ≥ a − C + C/L               with it.

    Where the link is slower than the GPU, m > q, the last one is an upper bound: what hides under C. Costs
    are linear: attention over the past and the split into chunks are left out.
    """
    a, m, layers = costs.latency_ns, costs.load_ns_per_block, costs.layers
    r = costs.compute_ns_per_block - costs.submit_ns_per_block
    if not costs.pipelining:
        return _both([_at_least(a, r - m)])
    hidden = costs.residual_ns + (-costs.residual_ns // layers)  # C − C/L, a part of a ns rounded up
    return _both([_at_least(a * layers, r * layers - m), _at_least(a - hidden, r - m)])


def _at_least(least: int, slope: int) -> tuple[int, int | None] | None:
    """Return the k ≥ 1 with k · slope ≥ least."""
    if slope > 0:
        return max(-(-least // slope), 1), None
    if slope == 0:
        return (1, None) if least <= 0 else None
    most = -least // -slope
    return (1, most) if most >= 1 else None


def _both(ranges: list[tuple[int, int | None] | None]) -> tuple[int, int | None] | None:
    first, last = 1, None
    for bounds in ranges:
        if bounds is None:
            return None
        first = max(first, bounds[0])
        ends = [end for end in (last, bounds[1]) if end is not None]
        last = min(ends) if ends else None
    return None if last is not None and last < first else (first, last)
