"""The global prefix store under detailed accounting: the trie, read under seed 000's names."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.cache.prefix_view import PrefixHash
from kvcache_sim.cache.store import BlockStore
from kvcache_sim.cache.token_store import Keys


@dataclass(frozen=True, slots=True)
class ResidentPrefix:
    """A prefix that the trie holds, seen now; the fields of seed 000's GlobalPrefixCacheInfo.

    ``last_access`` counts admissions and releases, as eviction orders them; the trie keeps no clock.
    """

    length: int
    kv_block_ids: tuple[PrefixHash, ...]
    reference_count: int
    last_access: int


def resident_prefixes(
    store: BlockStore, keys: Keys, request: int, prompt_tokens: int, block_size_tokens: int
) -> dict[PrefixHash, ResidentPrefix]:
    """Return the whole-block prefixes of a prompt that are resident in any tier, the shortest first.

    A prefix without users is still there: it leaves when a tier needs its room. Looking changes nothing.
    """
    found: dict[PrefixHash, ResidentPrefix] = {}
    blocks: tuple[PrefixHash, ...] = ()
    for end, users, access in store.uses(request, prompt_tokens // block_size_tokens):
        while len(blocks) < end:
            blocks = (*blocks, keys.key(request, len(blocks)))
            found[blocks[-1]] = ResidentPrefix(len(blocks) * block_size_tokens, blocks, users, access)
    return found
