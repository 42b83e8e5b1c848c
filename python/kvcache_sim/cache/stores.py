"""The store of a machine: the tree of the core, a real engine's cache, or a count of tokens.

Most runs need only the tree; the makers of the others are imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kvcache_sim import _core
from kvcache_sim.base.values import Value
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import (
    CacheSettings,
    LowerEngine,
    MovementSettings,
    PrefixViewSettings,
    TierSettings,
)
from kvcache_sim.cache.store import SharesPrefixes
from kvcache_sim.cache.store_kinds import TOKENS, store_kind
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.policies.plugins.watchdog import Watchdog
from kvcache_sim.policies.tier_orders import Orders
from kvcache_sim.workload.key_arrays import key_arrays
from kvcache_sim.workload.trace import NOT_GIVEN, Trace

#: The stores of the core.
CoreStore = (
    _core.Store
    | _core.PoolStore
    | _core.TieredPoolStore
    | _core.RadixStore
    | _core.GroupStore
    | _core.TokenStore
)


class MachineStore(Value):
    """One machine's store under each contract that it implements."""

    gpu: CoreStore
    #: The same store, if it is a tree of blocks: with lower tiers and manual marks.
    tree: MarkingStore | None = None
    #: The same store, if its shared prefixes are separate entries.
    prefixes: SharesPrefixes | None = None
    #: The same store, if it is a pool of several cache groups.
    groups: _core.GroupStore | None = None


#: Makes a store from a machine's tiers, and True for each tier that writes its victims down.
_Make = Callable[[Sequence[TierSettings], list[bool]], MachineStore]


class StoreMaker:
    """Makes the stores of machines that serve one trace, by the cache's settings.

    Under simplified accounting capacities of tiers are counts of tokens. Raises UsageError if the cache's
    block does not divide the trace's; ``make`` raises it for an unknown or unsupported policy of a tier.
    """

    def __init__(self, cache: CacheSettings, trace: Trace, movement: MovementSettings | None = None) -> None:
        self.cache = cache
        self._movement = movement or MovementSettings()
        self._trace = trace
        #: Watches plug-ins that order a tier's evictions, during a run.
        self.watchdog = Watchdog(watches=False)
        #: The eviction orders of all stores made here.
        self.orders = Orders(cache.block_size_tokens, self.watchdog)
        #: Names of the blocks of all stores except stores of cache groups, which have their own keys.
        self.keys: _core.Keys | None = None
        #: All stores made here.
        self.made: list[CoreStore] = []
        if cache.groups is not None:
            self._make = self._of_groups(cache.groups)
            return
        self.keys = _core.Keys(*key_arrays(trace, cache.block_size_tokens))
        self._make = self._maker(self.keys)

    def make(self, tiers: Sequence[TierSettings], write_back: list[bool]) -> MachineStore:
        """Return an empty store; ``write_back``: True for each tier that writes its victims to the next."""
        store = self._make(tiers, write_back)
        self.made.append(store.gpu)
        return store

    def make_lone(self, tier: TierSettings) -> CoreStore:
        """Return an empty store of one tier without a machine, for example for a router's index.

        If machines have an engine's own tiers below, it is that engine's store without them. SGLang's tree
        stores no prompt without its answer: kvsim's own LRU tree replaces it.
        """
        cache = replace(self.cache, lower_semantics=None)
        if cache.semantics == "sglang":
            cache = replace(cache, semantics="tree", policy=CacheSettings().policy)
        if cache != self.cache:
            return StoreMaker(cache, self._trace).make_lone(tier)
        return self.make([tier], [False]).gpu

    def _maker(self, keys: _core.Keys) -> _Make:
        if store_kind(self.cache) is TOKENS:
            return self._of_tokens(keys)
        if self.cache.lower_semantics is not None:
            return self._of_lower_engine(self.cache.lower_semantics, keys)
        if self.cache.semantics != "tree":
            return self._of_engine(keys)
        return self._tree(keys)

    def _tree(self, keys: _core.Keys) -> _Make:
        orders = self.orders
        touch, overflow = self.cache.touch, self.cache.overflow
        by_step = self._movement.read_buffer_layers is not None
        waits = "wait-for-writes" if overflow == "wait" and by_step else overflow
        write_once = self._movement.prefetch != "none"
        batch_blocks = self.cache.eviction_batch_blocks
        view, block = self.cache.prefix_view, self.cache.block_size_tokens
        shared = None if view == PrefixViewSettings() else (view, block)

        def make(tiers: Sequence[TierSettings], write_back: list[bool]) -> MachineStore:
            capacities = [tier.capacity_blocks for tier in tiers]
            store = _core.Store(
                keys,
                capacities,
                write_back,
                orders.native(tiers),
                touch,
                batch_blocks,
                shared,
                waits,
                write_once,
            )
            return MachineStore(store, store)

        return make

    def _of_engine(self, keys: _core.Keys) -> _Make:
        from kvcache_sim.cache.engine_stores import engine_maker

        make_store = engine_maker(self.cache, self._trace, keys)
        return lambda tiers, write_back: MachineStore(make_store(tiers))

    def _of_lower_engine(self, engine: LowerEngine, keys: _core.Keys) -> _Make:
        from kvcache_sim.cache.lower_engines import lower_engine_maker

        make_store = lower_engine_maker(engine, self.cache, self._trace, keys)
        return lambda tiers, write_back: MachineStore(make_store(tiers))

    def _of_groups(self, groups: GroupSettings) -> _Make:
        from kvcache_sim.cache.engine_stores import group_maker, lone_capacity
        from kvcache_sim.cache.lower_engines import groups_with_tier_maker

        cache = self.cache
        if cache.lower_semantics is not None:
            make_tiered = groups_with_tier_maker(groups, cache, self._trace)
            return lambda tiers, write_back: _pool(make_tiered(tiers))
        make_lone = group_maker(groups, self._trace, cache.enabled)
        return lambda tiers, write_back: _pool(make_lone(lone_capacity(cache, tiers)))

    def _of_tokens(self, keys: _core.Keys) -> _Make:
        trace, cache = self._trace, self.cache
        history = trace.history_tokens if len(trace.history_tokens) else np.full(len(trace), NOT_GIVEN)
        prompts = (trace.session.astype(np.int64), trace.input_tokens.astype(np.int64), history)
        block, views = cache.block_size_tokens, (cache.session_view, cache.prefix_view)

        def make(tiers: Sequence[TierSettings], write_back: list[bool]) -> MachineStore:
            store = _core.TokenStore(keys, prompts, block, tiers[0].capacity_blocks, *views)
            return MachineStore(store, prefixes=store)

        return make


def _pool(store: _core.GroupStore) -> MachineStore:
    return MachineStore(store, groups=store)
