"""The global prefix store under detailed accounting: the trie, read under seed 000's names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from kvcache_sim.cache.prefix_view import PrefixHash
from kvcache_sim.cache.token_store import Keys
from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class ResidentPrefix:
    """A prefix that the trie holds, seen now; the fields of seed 000's GlobalPrefixCacheInfo."""

    length: int
    kv_block_ids: tuple[PrefixHash, ...]
    reference_count: int
    #: When a request that begins with it was last admitted or done here; −1 where none was.
    last_access_ns: int

    @property
    def last_access_time(self) -> float:
        """Simulation time of the last access in seconds."""
        return self.last_access_ns / NS_PER_S


def resident_prefixes(
    store: TieredStore,
    keys: Keys,
    request: int,
    prompt_tokens: int,
    block_size_tokens: int,
    last_use_ns: Mapping[int, int],
) -> dict[PrefixHash, ResidentPrefix]:
    """Return the whole-block prefixes of a prompt that are resident in any tier, the shortest first.

    ``last_use_ns``: when each request was last admitted or done on this machine (``Outcomes.last_use_ns``). A
    prefix without users is still there: it leaves when a tier needs its room. Looking changes nothing. Cost:
    a binary search among the blocks for each request of ``last_use_ns``.
    """
    parts = store.uses(request, prompt_tokens // block_size_tokens)
    resident = parts[-1][0] if parts else 0
    names = tuple(keys.key(request, block) for block in range(resident))
    accessed = [-1] * (resident + 1)
    for other, at_ns in last_use_ns.items():
        shared = _shared_blocks(keys, names, other)
        accessed[shared] = max(accessed[shared], at_ns)
    for blocks in range(resident - 1, 0, -1):  # who shares a prefix shares every shorter one
        accessed[blocks] = max(accessed[blocks], accessed[blocks + 1])
    found: dict[PrefixHash, ResidentPrefix] = {}
    for end, users, _ in parts:
        for blocks in range(len(found) + 1, end + 1):
            length = blocks * block_size_tokens
            found[names[blocks - 1]] = ResidentPrefix(length, names[:blocks], users, accessed[blocks])
    return found


def _shared_blocks(keys: Keys, names: tuple[PrefixHash, ...], other: int) -> int:
    """Return how many leading blocks another request shares; keys are chained, so it is a binary search."""
    return bisect_left(range(len(names)), True, key=lambda block: keys.key(other, block) != names[block])
