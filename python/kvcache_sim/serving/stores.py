"""How the stores of the machines are made: by the native core, by its twin, or as a count of tokens.

Most runs need the native core alone; the others are imported by whoever makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvcache_sim.backends import reference
from kvcache_sim.cache.digest import Digest, RollingDigest
from kvcache_sim.cache.key_arrays import KeyArrays, key_arrays
from kvcache_sim.cache.prefix_view import PrefixViewSettings
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.cache.store import BlockStore
from kvcache_sim.cache.tier_orders import Orders
from kvcache_sim.engine import Engine
from kvcache_sim.policies.plugins.watchdog import Watchdog
from kvcache_sim.serving.machine import MakeStore
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.workload.trace import NOT_TOLD, Trace

if TYPE_CHECKING:
    from kvcache_sim.cache.token_store import Keys, Prompts


class Stores:
    """Makes each machine's store and outcomes over one trace.

    ``settings`` are the cluster's as its engine sees them: under simplified accounting a block is a token.
    Raises UsageError where the cache's block does not divide the trace's.
    """

    def __init__(self, settings: ClusterSettings, trace: Trace, engine: Engine, backend: str) -> None:
        self._cache = settings.cache
        self._trace = trace
        self._engine = engine
        self._native = backend == "native"
        self.simplified = settings.cache.accounting == "simplified"
        self.settings = _in_tokens(settings) if self.simplified else settings
        self._arrays = key_arrays(trace, settings.cache.block_size_tokens)
        gated = settings.cache.prefix_view != PrefixViewSettings()
        self._keys = _one_by_one(self._arrays) if self.simplified or gated or not self._native else None
        self._prompts = _prompts(trace) if self.simplified else None
        self.watchdog = Watchdog("")
        self.watchdog.watches = self.watchdog.at_work = False
        self.orders = Orders(settings.cache.block_size_tokens, self.watchdog)
        self._make_native = None if self.simplified or not self._native else self._native_maker()

    def digest(self) -> Digest:
        """Return a new digest for the arrivals of one machine."""
        if not self._native:
            return RollingDigest()
        from kvcache_sim import _core

        return _core.Digest()

    def outcomes(self) -> Outcomes:
        """Return the views of one machine, empty."""
        gated = self._cache.prefix_view != PrefixViewSettings()
        return Outcomes(self._trace, self._cache, self._keys if gated else None)

    def maker(self, outcomes: Outcomes) -> MakeStore:
        """Return how the store of the machine with these views is made."""
        if self._make_native is not None:
            return self._make_native
        keys = self._keys
        assert keys is not None
        if self._cache.semantics != "tree":
            return self._engine_maker(keys)
        if not self.simplified:
            return lambda tiers, write_back: self._twin(keys, tiers, write_back)
        from kvcache_sim.cache.token_store import TokenStore

        prompts = self._prompts
        assert prompts is not None

        def make(tiers: Sequence[TierSettings], write_back: list[bool]) -> BlockStore:
            del write_back
            store = TokenStore(
                keys=keys,
                prompts=prompts,
                block_size_tokens=self._cache.block_size_tokens,
                capacity=tiers[0].capacity_blocks,
                sessions=outcomes.sessions,
                admission=outcomes.prefixes,
                now_ns=lambda: self._engine.now_ns,
            )
            outcomes.tokens = store
            return store

        return make

    def _native_maker(self) -> MakeStore:
        from kvcache_sim import _core

        keys = _core.Keys(*self._arrays)
        if self._cache.semantics != "tree":
            return self._engine_maker(keys)
        orders, touch = self.orders, self._cache.touch

        def make(tiers: Sequence[TierSettings], write_back: list[bool]) -> BlockStore:
            return _core.Store(keys, _capacities(tiers), write_back, orders.native(tiers), touch)

        return make

    def _twin(self, keys: Keys, tiers: Sequence[TierSettings], write_back: list[bool]) -> BlockStore:
        store: Any = reference("store")(keys, _capacities(tiers), write_back, self._cache.touch)
        store.eviction = self.orders.twin(tiers)
        made: BlockStore = store
        return made

    def _engine_maker(self, keys: Any) -> MakeStore:
        from kvcache_sim.serving.engine_stores import engine_maker

        return engine_maker(self._cache, self._trace, keys, self._native)


def _capacities(tiers: Sequence[TierSettings]) -> list[int | None]:
    """Return the blocks of each tier, None without bound."""
    return [tier.capacity_blocks for tier in tiers]


def _one_by_one(arrays: KeyArrays) -> Keys:
    """Return keys that plain Python asks for block by block."""
    keys: Keys = reference("keys")(*arrays)
    return keys


def _in_tokens(cluster: ClusterSettings) -> ClusterSettings:
    """Return the cluster with blocks of one token, and as many of them as its blocks hold."""
    size = cluster.cache.block_size_tokens
    machines = []
    for machine in cluster.machines:
        tiers = tuple(
            replace(
                tier, capacity_blocks=None if tier.capacity_blocks is None else tier.capacity_blocks * size
            )
            for tier in machine.tiers
        )
        machines.append(replace(machine, tiers=tiers))
    return replace(cluster, machines=tuple(machines), cache=replace(cluster.cache, block_size_tokens=1))


def _prompts(trace: Trace) -> Prompts:
    """Return the columns of a trace that a token store reads."""
    from kvcache_sim.cache.token_store import Prompts

    history = trace.history_tokens.tolist() if len(trace.history_tokens) else [NOT_TOLD] * len(trace)
    session_ids = [trace.session_id(session) for session in trace.session.tolist()]
    return Prompts(session_ids, trace.input_tokens.tolist(), history)
