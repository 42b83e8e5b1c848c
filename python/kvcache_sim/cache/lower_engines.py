"""Stores of engines with a tier of their own below the GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim import _core
from kvcache_sim.cache.engine_stores import lengths
from kvcache_sim.cache.groups import GroupSettings, native_groups
from kvcache_sim.cache.settings import CacheSettings, LowerEngine, TierSettings
from kvcache_sim.workload.trace import Trace

#: An engine's own store with a tier below.
LowerStore = _core.TieredPoolStore | _core.RadixStore | _core.GroupStore
#: Makes a store from a machine's tiers.
MakeLower = Callable[[Sequence[TierSettings]], LowerStore]

#: SGLang's names of the write policies.
_HICACHE_WRITES = {
    "back": "write_back",
    "through": "write_through",
    "selective": "write_through_selective",
}


def lower_engine_maker(
    engine: LowerEngine, cache: CacheSettings, trace: Trace, keys: _core.Keys
) -> MakeLower:
    """Return the maker of a machine's store under ``tiers.X.semantics``."""
    return _MAKERS[engine](cache, trace, keys)


def groups_with_tier_maker(
    groups: GroupSettings, cache: CacheSettings, trace: Trace
) -> Callable[[Sequence[TierSettings]], _core.GroupStore]:
    """Return the maker of a machine's store for cache groups with a tier below: vLLM's, or the tree's."""
    keys = native_groups(groups.layout, trace, answers_shared=True)
    if cache.lower_semantics == "vllm-simple-kv-offload":
        return _above_simple(cache, keys, groups.limits)
    writes = cache.lower_write if groups.rules == "tree" else "engine"
    prompts = trace.input_tokens.tolist()

    def make(tiers: Sequence[TierSettings]) -> _core.GroupStore:
        (gpu, cpu), _ = _blocks(tiers)
        below = cpu, cache.lower_chunk_blocks, tiers[1].policy, writes
        return _core.GroupStore.with_tier(keys, groups.limits, gpu, groups.rules, below, prompts)

    return make


def _blocks(tiers: Sequence[TierSettings]) -> tuple[tuple[int, int], int | None]:
    """Return the blocks of GPU and CPU, and those of the tier below: None without a bound, or no tier."""
    gpu, cpu, *disk = (tier.capacity_blocks for tier in tiers)
    assert gpu is not None
    assert cpu is not None
    return (gpu, cpu), disk[0] if disk else None


def _vllm_offload(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> MakeLower:
    prompts = trace.input_tokens.tolist(), cache.block_size_tokens

    def make(tiers: Sequence[TierSettings]) -> LowerStore:
        (gpu, cpu), _ = _blocks(tiers)
        return _core.TieredPoolStore.with_offload(
            keys, gpu, cpu, cache.lower_chunk_blocks, tiers[1].policy, prompts
        )

    return make


def _above_simple(
    cache: CacheSettings, groups: _core.KvGroups, limits: tuple[int, int | None, int]
) -> Callable[[Sequence[TierSettings]], _core.GroupStore]:
    def make(tiers: Sequence[TierSettings]) -> _core.GroupStore:
        (gpu, cpu), _ = _blocks(tiers)
        return _core.GroupStore.with_simple_tier(groups, limits, gpu, cpu, cache.lower_lazy_tokens)

    return make


def _vllm_simple(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> MakeLower:
    """Return the maker for full attention, which is one cache group: only windows depend on its limits."""
    block = cache.block_size_tokens
    return _above_simple(cache, _core.KvGroups([("full", block, 0, keys, 1)], block), (1, None, 1 << 30))


def _hicache(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> MakeLower:
    rules, both = (cache.policy, _HICACHE_WRITES[cache.lower_write]), lengths(trace)
    prefetch, page = cache.lower_prefetch, cache.block_size_tokens

    def make(tiers: Sequence[TierSettings]) -> LowerStore:
        pages, disk = _blocks(tiers)
        storage = None
        if prefetch is not None and len(tiers) > 2:
            storage = disk, -(-prefetch.threshold_tokens // page), int(prefetch.share * pages[1] * page)
        return _core.RadixStore(keys, rules, page, pages, both, storage)

    return make


def _lmcache(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> MakeLower:
    prompts, block = trace.input_tokens.tolist(), cache.block_size_tokens

    def make(tiers: Sequence[TierSettings]) -> LowerStore:
        (gpu, cpu), disk = _blocks(tiers)
        below, policy = (cpu, disk or 0), f"{cache.lower_semantics}:{tiers[1].policy}"
        return _core.TieredPoolStore.with_lmcache(
            keys, gpu, below, cache.lower_chunk_blocks, policy, (prompts, block)
        )

    return make


_MAKERS = {
    "vllm-offload": _vllm_offload,
    "vllm-simple-kv-offload": _vllm_simple,
    "hicache": _hicache,
    "lmcache": _lmcache,
    "lmcache-server": _lmcache,
}
