"""Stores of engines with a tier of their own below the GPU: the core's, or the reference in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kvcache_sim.backends import reference
from kvcache_sim.cache.engine_stores import lengths
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings, LowerEngine, TierSettings
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim import _core

#: Makes a store, which fulfils ``LoadingStore`` and ``OffersComputed``, from a machine's tiers.
MakeLower = Callable[[Sequence[TierSettings]], Any]


def lower_engine_maker(
    engine: LowerEngine, cache: CacheSettings, trace: Trace, keys: Any, native: bool
) -> MakeLower:
    """Return what makes a machine's store under ``tiers.X.semantics``; ``keys`` are the backend's own."""
    return _MAKERS[engine](cache, trace, keys, native)


def _vllm_offload(cache: CacheSettings, trace: Trace, keys: Any, native: bool) -> MakeLower:
    if native:
        return _offload_in_core(cache, trace, keys)
    make_tier, make_store = reference("tier.vllm-offload"), reference("store.vllm-offload")
    prompts, block = trace.input_tokens.tolist(), cache.block_size_tokens

    def make(tiers: Sequence[TierSettings]) -> Any:
        gpu, cpu = tiers
        tier = make_tier(cpu.policy, cpu.capacity_blocks)
        return make_store(keys, gpu.capacity_blocks, tier, prompts, block)

    return make


def _offload_in_core(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> MakeLower:
    from kvcache_sim import _core

    prompts = trace.input_tokens.tolist(), cache.block_size_tokens

    def make(tiers: Sequence[TierSettings]) -> Any:
        gpu, cpu = (tier.capacity_blocks for tier in tiers)
        assert gpu is not None
        assert cpu is not None
        return _core.TieredPoolStore.with_offload(keys, gpu, cpu, tiers[1].policy, prompts)

    return make


def groups_with_tier_maker(groups: GroupSettings, trace: Trace, write: str, native: bool) -> MakeLower:
    """Return what makes a machine's store for cache groups with a tier below: vLLM's, or the tree's."""
    if native:
        return _groups_in_core(groups, trace, write)
    make_tier, of_tree = reference("tier.vllm-offload"), groups.rules == "tree"
    make_store = reference("store.tiered-groups" if of_tree else "store.vllm-offload-groups")

    def make(tiers: Sequence[TierSettings]) -> Any:
        gpu, cpu = tiers
        tier = make_tier(cpu.policy, cpu.capacity_blocks)
        return make_store(trace, groups, gpu.capacity_blocks, tier, *([write] if of_tree else []))

    return make


def _groups_in_core(groups: GroupSettings, trace: Trace, write: str) -> MakeLower:
    from kvcache_sim import _core
    from kvcache_sim.cache.group_keys import native_groups

    keys = native_groups(groups.layout, trace, answers_shared=True)
    writes = write if groups.rules == "tree" else "engine"
    prompts = trace.input_tokens.tolist()

    def make(tiers: Sequence[TierSettings]) -> Any:
        gpu, cpu = (tier.capacity_blocks for tier in tiers)
        assert gpu is not None
        assert cpu is not None
        below = cpu, tiers[1].policy, writes
        return _core.GroupStore.with_tier(keys, groups.limits, gpu, groups.rules, below, prompts)

    return make


#: SGLang's names of the write policies.
_HICACHE_WRITES = {
    "back": "write_back",
    "through": "write_through",
    "selective": "write_through_selective",
}


def _hicache(cache: CacheSettings, trace: Trace, keys: Any, native: bool) -> MakeLower:
    if native:
        return _hicache_in_core(cache, trace, keys)
    make_settings, make_store = reference("settings.hicache"), reference("store.hicache")
    make_stored = reference("store.hicache-storage")
    both, page = lengths(trace), cache.block_size_tokens

    def make(tiers: Sequence[TierSettings]) -> Any:
        gpu, cpu, *disk = (tier.capacity_blocks for tier in tiers)
        pages, write = (gpu, cpu), _HICACHE_WRITES[cache.lower_write]
        own = cache.lower_prefetch
        if not disk or own is None:
            return make_store(keys, make_settings(cache.policy, page, *pages, write), both)
        below = (disk[0], own.threshold_tokens, own.share)
        return make_stored(keys, make_settings(cache.policy, page, *pages, write, *below), both)

    return make


def _hicache_in_core(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> MakeLower:
    from kvcache_sim import _core

    rules, both = (cache.policy, _HICACHE_WRITES[cache.lower_write]), lengths(trace)
    own, page = cache.lower_prefetch, cache.block_size_tokens

    def make(tiers: Sequence[TierSettings]) -> Any:
        gpu, cpu, *disk = (tier.capacity_blocks for tier in tiers)
        assert gpu is not None
        assert cpu is not None
        storage = None
        if own is not None and disk and disk[0] is not None:
            storage = disk[0], -(-own.threshold_tokens // page), int(own.share * cpu * page)
        return _core.HiCacheStore(keys, rules, page, (gpu, cpu), both, storage)

    return make


def _lmcache(cache: CacheSettings, trace: Trace, keys: Any, native: bool) -> MakeLower:
    if native:
        return _lmcache_in_core(cache, trace, keys)
    make_tiers, make_store = reference("tiers.lmcache"), reference("store.lmcache")
    prompts, block = trace.input_tokens.tolist(), cache.block_size_tokens

    def make(tiers: Sequence[TierSettings]) -> Any:
        gpu, cpu, *disk = tiers
        below = make_tiers(cpu.policy, cpu.capacity_blocks, disk[0].capacity_blocks if disk else 0)
        return make_store(keys, gpu.capacity_blocks, below, prompts, block)

    return make


def _lmcache_in_core(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> MakeLower:
    from kvcache_sim import _core

    prompts = trace.input_tokens.tolist(), cache.block_size_tokens

    def make(tiers: Sequence[TierSettings]) -> Any:
        gpu, cpu, *disk = (tier.capacity_blocks for tier in tiers)
        assert gpu is not None
        assert cpu is not None
        chunks = cpu, disk[0] or 0 if disk else 0
        return _core.TieredPoolStore.with_lmcache(keys, gpu, chunks, tiers[1].policy, prompts)

    return make


_MAKERS = {"vllm-offload": _vllm_offload, "hicache": _hicache, "lmcache": _lmcache}
