"""Stores with the rules of a real engine: vLLM's block pool and SGLang's radix tree, for a GPU tier alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.cache.groups import GroupSettings, native_groups, states_per_request
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from kvcache_sim.workload.trace import Trace

#: vLLM's pool, or SGLang's tree.
EngineStore = _core.PoolStore | _core.RadixStore
#: Makes a store from a machine's tiers.
MakeStore = Callable[[Sequence[TierSettings]], EngineStore]


def engine_maker(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> MakeStore:
    """Return the maker of a machine's store under ``cache.semantics``.

    The maker raises UsageError for lower tiers, and for an unbounded tier.
    """
    make = _POOLS[cache.semantics](cache, trace, keys)
    return lambda tiers: make(lone_capacity(cache, tiers))


def lone_capacity(cache: CacheSettings, tiers: Sequence[TierSettings]) -> int:
    """Return the blocks of a GPU tier; UsageError for lower tiers and for an unbounded tier."""
    capacity = tiers[0].capacity_blocks
    if len(tiers) > 1 or capacity is None:
        got = "lower tiers" if len(tiers) > 1 else "no bound"
        what = f"{cache.semantics} semantics need a {TIERS[COMPUTE]} tier alone, with a bound"
        raise UsageError(what, "cache.semantics", got)
    return capacity


def _vllm(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> Callable[[int], EngineStore]:
    return lambda capacity: _core.PoolStore(keys, capacity)


def _sglang(cache: CacheSettings, trace: Trace, keys: _core.Keys) -> Callable[[int], EngineStore]:
    rules, page, both = (cache.policy, ""), cache.block_size_tokens, lengths(trace)
    return lambda capacity: _core.RadixStore(keys, rules, page, (capacity, 0), both)


def lengths(trace: Trace) -> tuple[list[int], list[int]]:
    """Return by request the tokens of its prompt, and its tokens with KV at its end."""
    return trace.input_tokens.tolist(), trace.kv_tokens.tolist()


def group_maker(groups: GroupSettings, trace: Trace, cached: bool) -> Callable[[int], _core.GroupStore]:
    """Return the maker of a machine's store for a model's cache groups, from its number of blocks."""
    keys = native_groups(groups.layout, trace, True, states_per_request(groups, cached))
    return lambda capacity: _core.GroupStore(keys, groups.limits, capacity, groups.rules)


_POOLS = {"vllm": _vllm, "sglang": _sglang}
