"""Scenarios of HiCache over one machine."""

from kvcache_sim.simulation import RunOptions

CHECKED = RunOptions(check="full")


#: The write policies of scenarios and SGLang's names of them.
WRITES = {"back": "write_back", "through": "write_through", "selective": "write_through_selective"}


def scenario(gpu: int, cpu: int, policy: str, write: str, block: int = 4) -> str:
    capacity = f"gpu: {{capacity: {gpu} blocks}}, cpu: {{capacity: {cpu} blocks, semantics: hicache}}"
    cache = f"cache: {{block_size: {block}, policy: {policy}}}\n"
    return f"{cache}tiers: {{{capacity}}}\nwrite: {{policy: {write}}}\n"
