"""A simulation that receives its requests while it runs; its owner advances and ends it.

Its tokens and closed requests are reported in order of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Protocol, cast

import numpy as np

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import KV_SOURCES, STAGING
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.engine import ARRIVAL, NO_MACHINE
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.run import Run
from kvcache_sim.metrics.ttft_parts import columns_before_admission
from kvcache_sim.policies.plugins.watchdog import watching
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Router
from kvcache_sim.serving.router.registry import needs_of
from kvcache_sim.serving.sequence import Arrival, ClosedRequest, Status
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation.options import DEFAULT_OPTIONS, RunOptions
from kvcache_sim.simulation.simulation import Simulation
from kvcache_sim.workload.key_arrays import key_arrays
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace

#: Columns of a request's row by the field of ``ClosedRequest`` with the same value.
_FIELDS = {
    "request": "request",
    "arrival_ns": "arrival_ns",
    "prompt_num_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "machine": "machine",
    "decode_machine": "decode_machine",
    "preemptions": "preemptions",
    "recomputed_tokens": "recomputed_tokens",
    "first_token_ns": "first_token_ns",
    "finish_ns": "finish_ns",
    "queue_ns": "queue_ns",
    "prefill_ns": "prefill_ns",
    "cached_prefix_length_used": "cached_prefix_length_used",
    "num_tokens_requiring_prefill": "num_tokens_actually_prefilled",
}


class Listener(Protocol):
    """Receives the tokens of a live run, and its finished and aborted requests."""

    def tokens(self, requests: Sequence[int], now_ns: int) -> None:
        """Receive the next token of each of some requests."""

    def closed(self, sequence: ClosedRequest, now_ns: int) -> None:
        """Receive a request that finished or was aborted."""


class Outputs:
    """Reports the output of all machines to a listener; ``columns`` are those of a request's row.

    Cost: a native call per report, and a few µs per closed request.
    """

    def __init__(self, replicas: Sequence[NativeReplica], columns: Sequence[str], listener: Listener) -> None:
        self._listener = listener
        self._log = _core.OutputLog()
        self._replicas = replicas
        self._row = Struct(f"{len(columns)}q")
        self._fields = [(field, columns.index(column)) for field, column in _FIELDS.items()]
        self._cached = [columns.index(f"cached_{source}_tokens") for source in KV_SOURCES]
        self._status = columns.index("status")
        self._before_admission = [columns.index(column) for column in columns_before_admission()]
        for replica in replicas:
            replica.log_outputs(self._log)

    def report(self) -> None:
        """Report the output of the machines since the last call."""
        listener = self._listener
        left: dict[int, ClosedRequest] = {}
        for time_ns, machine, tokens, closed in self._log.take():
            if tokens:
                listener.tokens(tokens, time_ns)
            for request in closed:
                if request not in left:
                    left |= self._states(self._replicas[machine].take_rows())
                listener.closed(left.pop(request), time_ns)

    def _states(self, rows: bytes) -> dict[int, ClosedRequest]:
        """Return closed requests as their rows have them, by number."""
        states = map(self._state, self._row.iter_unpack(rows))
        return {state.request: state for state in states}

    def _state(self, row: tuple[int, ...]) -> ClosedRequest:
        state = ClosedRequest(-1, 0, 0, 0)
        for field, column in self._fields:
            setattr(state, field, row[column])
        state.admitted_ns = state.arrival_ns + sum(row[column] for column in self._before_admission)
        state.status = Status[STATUSES[row[self._status]].upper()]
        state.cached_tokens_by_source = tuple([row[column] for column in self._cached])
        return state


#: Initial time between two samples of a run of unknown length.
_SAMPLE_NS = NS_PER_S


class LiveSimulation(Simulation):
    """A cluster that receives requests while it runs, and reports their tokens as they are generated.

    A request has a row of ids of its prompt's and its answer's full blocks, numbered in order of first
    appearance. Its arrival is strictly after the time that the run has reached. Memory: with ``forget``,
    cached and open requests; under an engine's own semantics also about 4 bytes per id of all requests.
    Raises UsageError for stores that need all requests in advance.
    """

    _has_all_arrivals = False

    def __init__(
        self, settings: ClusterSettings, listener: Listener, options: RunOptions = DEFAULT_OPTIONS
    ) -> None:
        if settings.handover.decide != "always":
            raise UsageError(
                "requests of a live run go by their router alone", "handover.decide", expected="always"
            )
        router = settings.router
        if needs_of(router.policy).sent_blocks or router.index_kind != "truth":
            raise UsageError(
                "a router that keeps the prompts that it sent needs all requests in advance",
                "router.policy",
                router.policy,
                "a router that sees the machines",
            )
        if router.affinity is not None and router.affinity.mode == "sibling-group":
            what = "which session started another is not known before it comes"
            raise UsageError(what, "router.affinity.mode", "sibling-group", "session")
        none = requests_of(settings.cache.block_size_tokens, [], 0)
        super().__init__(settings, none, options)
        if not all(isinstance(store, _core.Store | _core.PoolStore) for store in self._stores.made):
            raise UsageError(
                "requests that come as they come need another cache",
                "cache.semantics",
                settings.cache.semantics,
                "tree or vllm, without simplified accounting",
            )
        self.fed = 0
        self._directed = self.cluster.router = _Directed(self.cluster.router)
        self._caches = cast("list[_core.Store | _core.PoolStore]", self._stores.made)
        self._ids = 0
        self._outputs = Outputs(self.replicas, self.recorder.row_columns, listener)
        self.sampler.interval_ns = _SAMPLE_NS

    @property
    def _requests(self) -> int:
        return self.fed

    @property
    def last_machine(self) -> int:
        """The machine that the latest request was sent to."""
        return self.cluster.pools.routed[self._directed.last].machine

    @property
    def caches(self) -> list[_core.Store | _core.PoolStore]:
        """The stores of all machines, in order, then those of a router's own index."""
        return self._caches

    def feed(self, window: Trace, ids: int, machine: int | None = None) -> None:
        """Add requests that arrive after the time that the run has reached; their ids are below ``ids``.

        They are sent to ``machine`` if given, else to the router's choice.
        """
        self._directed.machine = machine
        offsets, block_ids, _, full, _ = key_arrays(window, self.settings.cache.block_size_tokens)
        assert self._stores.keys is not None
        self._stores.keys.grow(self._caches, (offsets, block_ids, full), ids)
        self.fed += len(window)
        self._ids += len(block_ids)
        self.cluster.feed(window)
        self.sampler.wake()

    def abort(self, request: int, at_ns: int) -> None:
        """Abort a request at a time after the time that the run has reached, as its client would."""
        self.engine.schedule(at_ns, ARRIVAL, NO_MACHINE, self.cluster.abort, request)

    def run_to(self, until_ns: int) -> None:
        """Process everything up to and including a time."""
        with watching(self._stores.watchdog):
            self.engine.run(until_ns=until_ns)
        self._outputs.report()

    def forget(self, open_requests: list[int]) -> frozenset[int] | None:
        """Forget the ids of requests that are neither running nor cached; return the ids kept.

        None, and no change, unless every store is a tree and no copy is in transfer between tiers. Cost: a
        walk over the trees.
        """
        trees = [cache for cache in self._caches if isinstance(cache, _core.Store)]
        if self._is_moving or len(trees) < len(self._caches) or self._stores.keys is None:
            return None
        kept = self._stores.keys.kept(trees, open_requests)
        for tree in trees:
            tree.take_keys(kept)
        self._stores.keys = kept
        ids = frozenset(kept.kept_ids().tolist())
        self._ids = len(ids)
        return ids

    @property
    def ids_kept(self) -> int:
        """Ids of requests that are not forgotten, with repetitions."""
        return self._ids

    def clear(self) -> bool:
        """Empty every cache; False, and no change, if a cache is in use."""
        busy = any(cache.occupancy(0).held_blocks for cache in self._caches)
        pooled = 0 if self._pool is None else self._pool.tree.occupancy(STAGING).cached_blocks
        cleared = not (busy or self._is_moving) and all([cache.clear() for cache in self._caches])
        if self._pool is not None and cleared:
            self._pool.cleared_blocks += pooled
        return cleared

    @property
    def _is_moving(self) -> bool:
        """True if a copy is in transfer between tiers of a machine."""
        return any(replica.core.is_moving for replica in self.replicas)

    def end(self) -> Run:
        """Finish the run and return its measurements; raises as ``Simulation.run``."""
        with watching(self._stores.watchdog):
            self.engine.run()
        self._outputs.report()
        for replica in self.replicas:
            replica.flush_records()
        self._check_end()
        return self._finished()


class _Directed:
    """A router that can be overridden with a machine."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.machine: int | None = None
        #: Machine of the last request.
        self.last = 0

    def choose(self, arrival: Arrival) -> int:
        """Return the machine, among the machines that accept requests."""
        self.last = self.router.choose(arrival) if self.machine is None else self.machine
        return self.last


def requests_of(block_size: int, rows: list[tuple[int, int, int, list[int]]], named_tokens: int) -> Trace:
    """Return requests as (arrival, prompt tokens, answer tokens, ids); the ids name ``named_tokens``."""
    n = len(rows)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum([len(row[3]) for row in rows], out=offsets[1:])
    return Trace(
        arrival_ns=np.array([row[0] for row in rows], np.int64),
        input_tokens=np.array([row[1] for row in rows], np.int64),
        output_tokens=np.array([row[2] for row in rows], np.int64),
        id_offsets=offsets,
        block_ids=np.array([id for row in rows for id in row[3]], np.uint32),
        block_size=block_size,
        session=np.full(n, NO_SESSION, np.int32),
        turn=np.zeros(n, np.int32),
        think_ns=np.full(n, OPEN_LOOP, np.int64),
        is_conversational_turn=np.zeros(n, np.bool_),
        named_tokens=np.full(n, named_tokens, np.int64),
    )
