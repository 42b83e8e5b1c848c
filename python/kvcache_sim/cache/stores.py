"""Which store a machine gets: the native core's, its reference, a real engine's cache, or a count of tokens.

Most runs need the native core alone; the others are imported when they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcache_sim.backends import checked_backend, reference
from kvcache_sim.cache.digest import Digest
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.machine_store import MachineStore
from kvcache_sim.cache.prefix_view import PrefixViewSettings
from kvcache_sim.cache.settings import CacheSettings, LowerEngine, TierSettings
from kvcache_sim.cache.store import GpuStore
from kvcache_sim.cache.store_kinds import TOKENS, store_kind
from kvcache_sim.cache.tree_store import MarkingStore
from kvcache_sim.cache.views import Views, make_views
from kvcache_sim.policies.plugins.watchdog import Watchdog
from kvcache_sim.policies.tier_orders import Orders
from kvcache_sim.workload.key_arrays import KeyArrays, key_arrays
from kvcache_sim.workload.trace import NOT_TOLD, Trace

if TYPE_CHECKING:
    from kvcache_sim import _core
    from kvcache_sim.cache.token_store import Keys, Prompts

#: Makes a store from a machine's tiers, whether each writes its victims down, and the machine's views.
_Make = Callable[[Sequence[TierSettings], list[bool], Views], MachineStore]


class StoreMaker:
    """Makes the stores of machines that serve one trace, by the cache's settings and the backend.

    Under simplified accounting capacities are counts of tokens, so tiers must come with theirs in tokens.
    ``tokens_in_core``: whether the core may keep that count, which none but its own replicas can use.
    Raises UsageError where the cache's block does not divide the trace's, and for an unknown backend;
    ``make`` raises it for a tier's policy that is unknown or cannot run here.
    """

    def __init__(
        self,
        cache: CacheSettings,
        trace: Trace,
        now_ns: Callable[[], int],
        backend: str,
        tokens_in_core: bool = False,
    ) -> None:
        self.cache = cache
        self._trace = trace
        self._now_ns = now_ns
        self._native, self._backend = checked_backend(backend) == "native", backend
        #: Whether stores count tokens, and in plain Python whatever the backend.
        self.simplified = store_kind(cache) is TOKENS
        self.tokens_in_python = self.simplified and not (self._native and tokens_in_core)
        #: Watches plug-ins that order a tier's evictions, while a run lasts.
        self.watchdog = Watchdog("", watches=False, at_work=False)
        #: The eviction orders of all stores made here.
        self.orders = Orders(cache.block_size_tokens, self.watchdog)
        #: Names the blocks of native stores; others have keys of their own.
        self.native_keys: _core.Keys | None = None
        #: All stores made here.
        self.made: list[GpuStore] = []
        #: What names prefixes where not every prefix is shared at once, else None.
        self.gate_keys: Keys | None = None
        if cache.groups is not None:
            self._make = self._of_groups(cache.groups)
            return
        arrays = key_arrays(trace, cache.block_size_tokens)
        keys = _keys_in_python(arrays) if self.tokens_in_python or not self._native else None
        self._make = self._maker(arrays, keys)
        if cache.prefix_view != PrefixViewSettings():
            self.gate_keys = keys or self.native_keys

    def make(self, tiers: Sequence[TierSettings], write_back: list[bool], views: Views) -> MachineStore:
        """Return an empty store; ``write_back``: whether each tier writes its victims to the one below."""
        store = self._make(tiers, write_back, views)
        self.made.append(store.gpu)
        return store

    def make_lone(self, tier: TierSettings) -> GpuStore:
        """Return an empty store of one tier that belongs to no machine, such as a router's index.

        Where machines have tiers of an engine's own below, it is that engine's without them. SGLang's tree
        takes no prompt without its answer: in its place stands kvsim's own tree, least recent first.
        """
        cache = replace(self.cache, lower_semantics=None)
        if cache.semantics == "sglang":
            cache = replace(cache, semantics="tree", policy=CacheSettings().policy)
        if cache != self.cache:
            return StoreMaker(cache, self._trace, self._now_ns, self._backend).make_lone(tier)
        return self.make([tier], [False], make_views(self.cache)).gpu

    def digest(self) -> Digest:
        """Return a new digest: for the arrivals of one machine, or what happens in one store."""
        from kvcache_sim import _core

        made: Digest = _core.Digest() if self._native else reference("digest")()
        return made

    def _maker(self, arrays: KeyArrays, keys: Keys | None) -> _Make:
        if self.simplified:
            return self._tokens_in_core(arrays) if keys is None else self._of_tokens(keys)
        if self.cache.lower_semantics is not None:
            if self._native:
                self.native_keys = keys = _native_keys(arrays)
            return self._of_lower_engine(self.cache.lower_semantics, keys)
        if self.cache.semantics != "tree":
            if self._native:
                self.native_keys = keys = _native_keys(arrays)
            return self._of_engine(keys)
        return self._native_tree(arrays) if self._native else self._reference_tree(keys)

    def _native_tree(self, arrays: KeyArrays) -> _Make:
        from kvcache_sim import _core

        keys, orders = _native_keys(arrays), self.orders
        touch, batch_blocks = self.cache.touch, self.cache.eviction_batch_blocks
        self.native_keys = keys

        def make(tiers: Sequence[TierSettings], write_back: list[bool], views: Views) -> MachineStore:
            store = _core.Store(
                keys, _capacities(tiers), write_back, orders.native(tiers), touch, batch_blocks
            )
            return MachineStore(store, store, loading=store)

        return make

    def _reference_tree(self, keys: Any) -> _Make:
        make_store, orders = reference("store"), self.orders
        touch, batch_blocks = self.cache.touch, self.cache.eviction_batch_blocks

        def make(tiers: Sequence[TierSettings], write_back: list[bool], views: Views) -> MachineStore:
            store: MarkingStore = make_store(
                keys, _capacities(tiers), write_back, touch, orders.of_reference(tiers), batch_blocks
            )
            return MachineStore(store, store, loading=store)

        return make

    def _of_engine(self, keys: Any) -> _Make:
        from kvcache_sim.cache.engine_stores import engine_maker

        make_store = engine_maker(self.cache, self._trace, keys, self._native)
        return lambda tiers, write_back, views: MachineStore(make_store(tiers))

    def _of_lower_engine(self, engine: LowerEngine, keys: Any) -> _Make:
        from kvcache_sim.cache.lower_engines import lower_engine_maker

        make_store = lower_engine_maker(engine, self.cache, self._trace, keys, self._native)

        def make(tiers: Sequence[TierSettings], write_back: list[bool], views: Views) -> MachineStore:
            store = make_store(tiers)
            prefetches = self.cache.lower_prefetch is not None and len(tiers) > 2
            return MachineStore(store, loading=store, offers=store, prefetching=store if prefetches else None)

        return make

    def _of_groups(self, groups: GroupSettings) -> _Make:
        from kvcache_sim.cache.engine_stores import group_maker, lone_capacity

        if self.cache.lower_semantics is not None:
            return self._of_groups_with_tier(groups)
        make_store, cache = group_maker(groups, self._trace, self._native), self.cache

        def make(tiers: Sequence[TierSettings], write_back: list[bool], views: Views) -> MachineStore:
            store = make_store(lone_capacity(cache, tiers))
            return MachineStore(store, groups=store)

        return make

    def _of_groups_with_tier(self, groups: GroupSettings) -> _Make:
        from kvcache_sim.cache.lower_engines import groups_with_tier_maker

        make_store = groups_with_tier_maker(groups, self._trace, self.cache.lower_write, self._native)

        def make(tiers: Sequence[TierSettings], write_back: list[bool], views: Views) -> MachineStore:
            store = make_store(tiers)
            return MachineStore(store, groups=store, loading_groups=store, offers=store)

        return make

    def _of_tokens(self, keys: Keys) -> _Make:
        from kvcache_sim.cache.token_store import TokenStore

        prompts, block = _prompts(self._trace), self.cache.block_size_tokens

        def make(tiers: Sequence[TierSettings], write_back: list[bool], views: Views) -> MachineStore:
            store = TokenStore(
                keys=keys,
                prompts=prompts,
                block_size_tokens=block,
                capacity=tiers[0].capacity_blocks,
                sessions=views.sessions,
                admission=views.prefixes,
                now_ns=self._now_ns,
                records=self.digest(),
            )
            return MachineStore(store, sessions=store, prefixes=store)

        return make

    def _tokens_in_core(self, arrays: KeyArrays) -> _Make:
        from kvcache_sim import _core

        trace, cache = self._trace, self.cache
        history = trace.history_tokens if len(trace.history_tokens) else np.full(len(trace), NOT_TOLD)
        prompts = (trace.session.astype(np.int64), trace.input_tokens.astype(np.int64), history)
        self.native_keys = keys = _native_keys(arrays)

        def make(tiers: Sequence[TierSettings], write_back: list[bool], views: Views) -> MachineStore:
            store = _core.TokenStore(
                keys,
                prompts,
                cache.block_size_tokens,
                tiers[0].capacity_blocks,
                cache.session_view,
                cache.prefix_view,
            )
            return MachineStore(store, prefixes=store)

        return make


def _capacities(tiers: Sequence[TierSettings]) -> list[int | None]:
    """Return the blocks of each tier, None without bound."""
    return [tier.capacity_blocks for tier in tiers]


def _native_keys(arrays: KeyArrays) -> Any:
    from kvcache_sim import _core

    return _core.Keys(*arrays)


def _keys_in_python(arrays: KeyArrays) -> Keys:
    """Return keys that plain Python asks for block by block."""
    keys: Keys = reference("keys")(*arrays)
    return keys


def _prompts(trace: Trace) -> Prompts:
    """Return the columns of a trace that a token store reads."""
    from kvcache_sim.cache.token_store import Prompts

    history = trace.history_tokens.tolist() if len(trace.history_tokens) else [NOT_TOLD] * len(trace)
    session_ids = [trace.session_id(session) for session in trace.session.tolist()]
    return Prompts(session_ids, trace.input_tokens.tolist(), history)
