"""One simulation: build the cluster, run it, return the measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim import _core
from kvcache_sim.base.errors import InvariantError, UsageError
from kvcache_sim.cache.machine import Machine, MachineBuilder, MachineTiers
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.engine import Engine, beyond_time
from kvcache_sim.metrics.cache_groups import group_counters, junction_rows
from kvcache_sim.metrics.digests import MachineHashes, digest_of_events
from kvcache_sim.metrics.recorder import RunRecorder
from kvcache_sim.metrics.run import EngineUse, Mark, Observer, Progress, Run
from kvcache_sim.metrics.run_tables import RunTables
from kvcache_sim.metrics.sampler import SAMPLES, Sampler
from kvcache_sim.policies.plugins.uses import begin_uses, summed
from kvcache_sim.policies.plugins.watchdog import watching
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.handover.pools import Pools
from kvcache_sim.serving.machine import build_replicas
from kvcache_sim.serving.native_arrivals import open_front_door
from kvcache_sim.serving.router.registry import needs_of
from kvcache_sim.serving.router.views import Views
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.serving.store_limits import refuse_beyond_store
from kvcache_sim.simulation.changes import Changes, RetentionPolicies
from kvcache_sim.simulation.context import answers_in_context
from kvcache_sim.simulation.end_checks import check_channels, check_pool, check_rows, check_stores
from kvcache_sim.simulation.marks import Marks, busy_shares, used_shares
from kvcache_sim.simulation.measured import (
    channel_use,
    counters,
    inter_token_latencies,
    pool_counters,
    tier_uses,
)
from kvcache_sim.simulation.options import DEFAULT_OPTIONS, RunOptions
from kvcache_sim.simulation.prefixes import resident_prefixes
from kvcache_sim.simulation.routing import Routing
from kvcache_sim.simulation.windows import Windows
from kvcache_sim.workload.readers.stream import TraceStream
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim.cache.operations.listing import ListedBlock
    from kvcache_sim.workload.block_names import BlockTokens

#: Events between two progress updates; on the native arrival path one event covers many requests.
_EVENTS_PER_GLANCE, _NATIVE_EVENTS_PER_GLANCE = 20_000, 16


class Simulation:
    """A cluster about to run one trace."""

    #: True if all arrivals are known before the run, so that the native arrival path is possible.
    _has_all_arrivals = True

    def __init__(self, settings: ClusterSettings, requests: Trace | TraceStream, options: RunOptions) -> None:
        requests = answers_in_context(settings, requests)
        stream = requests if isinstance(requests, TraceStream) else None
        trace = requests.first if isinstance(requests, TraceStream) else requests
        _refuse(settings, options)
        self.settings, self.trace, self.options = settings, trace, options
        self._plugins = begin_uses()
        self.engine = Engine(len(settings.machines) + (settings.pool is not None))
        self.recorder = RunRecorder(options.record_window_ns, check_rows)
        self._stores = StoreMaker(settings.cache, trace, settings.movement)
        self.digests = [_core.Digest() for _ in settings.machines]
        self.channels = _channels(settings)
        counted = settings.in_tokens() if settings.cache.accounting == "simplified" else settings
        self._pool: PoolNode | None = None
        self._machines = self._build_machines(counted)
        self.replicas = build_replicas(self._machines, counted, self.recorder, options.check == "full")
        if options.schedule:
            from kvcache_sim.simulation.schedule import write_down

            write_down(self.replicas)
        views = Views(trace, counted, self.replicas, self.engine)
        pools = Pools(self.replicas, counted, self.channels, self.engine, self.recorder, views)
        routing = Routing(settings, pools, self._machines, self._stores, self.engine)
        if settings.models is not None:
            routing.by_model(settings.models.of_machine, trace.model.tolist())
        self._changes = Changes(settings.membership, self.replicas, self._machines, self._done)
        router = self._changes.router(routing, len(trace))
        self._watched = routing.watched(router) if options.regret else None
        self._index = routing.index
        self.cluster = Cluster(
            trace, self.replicas, pools, self._watched or router, self.recorder, self.digests
        )
        self._changes.join(self.cluster, routing, trace)
        trees = [cache.tree for cache in self._machines]
        self._retention = RetentionPolicies(settings, trace, self.cluster, trees)
        #: True if requests arrive on the native path, without an engine event each.
        self._native_arrivals = self._allows_lookahead(views) and self._has_lookahead()
        span = int(trace.arrival_ns.max()) if len(trace) else 0
        self.sampler = Sampler(self.engine, self.replicas, self.channels, span // SAMPLES, self._done)
        self._marks = Marks(self.engine, self.sampler, options.marks_ns, self._counted)
        if self._changes.membership is not None:
            self._changes.membership.when_lost.append(self.sampler.leave_out)
        self._span_ns = span if stream is None else 0
        self._windows: Windows | None = None
        if stream is not None:
            self._windows = Windows(stream, self.replicas, self._stores)
            self.cluster.read_on(self._windows.next)

    def _has_lookahead(self) -> bool:
        """Enable lookahead and the native arrival path; return True if the native path is enabled."""
        for replica in self.replicas:
            replica.enable_lookahead()
        return self._has_all_arrivals and open_front_door(self.cluster)

    def _build_machines(self, counted: ClusterSettings) -> list[Machine]:
        builder = MachineBuilder(self._stores, self.channels, self.engine, counted.cache, counted.movement)
        if counted.pool is not None:
            self._pool = builder.add_pool(len(counted.machines), counted.pool)
        return [
            builder.build(
                MachineTiers(
                    machine.tiers,
                    machine.edge_channels,
                    machine.edge_rails,
                    counted.cache_of(number) if machine.kv is not None else None,
                    counted.handover.form,
                )
            )
            for number, machine in enumerate(counted.machines)
        ]

    def _allows_lookahead(self, views: Views) -> bool:
        """Return True if no observer reacts to a machine's events at their simulated time."""
        return (
            self.cluster.open_loop
            and not self._retention.is_notified
            and self._index is None
            and not views.when_closed
            and not needs_of(self.settings.handover.router).clock
            and self._machines_are_apart()
        )

    def match_prefix(
        self, machine: int, request: int, tokens: BlockTokens | None = None
    ) -> tuple[ListedBlock, ...]:
        """Return each block that a request's prompt would hit on a machine now (see ``list_hit``).

        Raises UsageError for an unknown machine or request.
        """
        from kvcache_sim.serving.listing import Prompt, list_hit
        from kvcache_sim.workload.block_names import BlockNames

        for what, number, count in (
            ("machine", machine, len(self.replicas)),
            ("request", request, len(self.trace)),
        ):
            if not 0 <= number < count:
                raise UsageError(f"no such {what}", got=str(number), expected=f"0 to {count - 1}")
        names = BlockNames(self.trace, self.settings.cache.block_size_tokens)
        prompt = int(self.trace.input_tokens[request])
        together = self.cluster.pools.native
        return list_hit(self.replicas, together, Prompt(machine, request, prompt), names, tokens)

    def _machines_are_apart(self) -> bool:
        """Return True if machines do not depend on each other, or all their events have one order."""
        ordered = self.settings.movement.lookup == "cluster" or self.channels.timeline is not None
        if ordered or any(machine.role == "prefill" for machine in self.settings.machines):
            return True
        names = [
            {
                *machine.edge_channels.values(),
                *(name for rails in machine.edge_rails.values() for name in rails),
            }
            for machine in self.settings.machines
        ]
        return sum(map(len, names)) == len(set().union(*names))

    @property
    def _groups(self) -> dict[int, _core.GroupStore]:
        """The pool of cache groups of each machine that has one, by machine."""
        return {cache.number: cache.groups for cache in self._machines if cache.groups is not None}

    @property
    def _trees(self) -> dict[int, _core.Store]:
        """The tree of each machine that has one, by machine."""
        stores = ((cache.number, cache.store) for cache in self._machines)
        return {number: store for number, store in stores if isinstance(store, _core.Store)}

    def _done(self) -> bool:
        return self.cluster.closed == self._requests

    @property
    def _requests(self) -> int:
        """Number of known requests."""
        return len(self.trace) if self._windows is None else self._windows.requests

    def run(self, observer: Observer | None = None) -> Run:
        """Run to the end; UsageError beyond the last time, InvariantError for a violated invariant."""
        try:
            self._run(observer)
        except OverflowError:  # a time beyond 64 bits was about to reach the core
            raise beyond_time() from None
        if observer is not None:
            observer.update(self._progress())
        for replica in self.replicas:
            replica.flush_records()
        self._check_end()
        return self._finished()

    def _run(self, observer: Observer | None) -> None:
        with watching(self._stores.watchdog):
            self.cluster.start()
            self._changes.start()
            self.sampler.start()
            self._marks.start()
            events = _NATIVE_EVENTS_PER_GLANCE if self._native_arrivals else _EVENTS_PER_GLANCE
            while not self.engine.run(max_events=events):
                if observer is not None:
                    observer.update(self._progress())

    def _progress(self) -> Progress:
        shares = self.recorder.hit_shares()
        return Progress(
            now_ns=self.engine.now_ns,
            finished_requests=self.cluster.closed,
            total_requests=self._requests,
            steps=self._steps,
            tiers=used_shares(self.replicas),
            token_hit_rate=sum(shares.values()),
            queue=sum(r.counts()[0] for r in self.replicas),
            end_ns=self._span_ns,
            tier_hit_rates=shares,
            channels=busy_shares(self.channels, self.engine.now_ns),
        )

    def _check_end(self) -> None:
        n, closed = self._requests, self.cluster.closed
        if closed != n:
            raise InvariantError("I1: requests were left behind", got=f"{closed} of {n}")
        self.recorder.end()
        gone = self._changes.lost
        check_stores(replica for replica in self.replicas if replica.machine not in gone)
        if self._pool is not None:
            self._count_pool()
            check_pool(self._pool)

    def _finished(self) -> Run:
        requests = self.recorder.request_columns()
        lanes = [
            MachineHashes(d.value, r.store.digest) for d, r in zip(self.digests, self.replicas, strict=True)
        ]
        if self._pool is not None:
            lanes.append(MachineHashes(0, self._pool.tree.digest))
        counted = self._counted()
        check_channels(self.replicas, self._pool, self.channels, self.engine.now_ns)
        regret = {} if self._watched is None else self._watched.regret.counters()
        return Run(
            requests=requests,
            series=self.sampler.columns(),
            events=self.recorder.event_columns(),
            left_outcomes=self.recorder.left_outcomes,
            counters={**counted.counters, **regret},
            itl_ns=counted.itl_ns,
            marks=self._marks.noted,
            digest_events=digest_of_events(lanes),
            digest_results=self.recorder.results_digest(),
            engine=EngineUse("native", self._steps, self.engine.processed),
            end_ns=self.engine.now_ns,
            warnings=tuple(self._stores.orders.remarks()),
            channels=counted.channels,
            tiers=counted.tiers,
            prefixes=(
                resident_prefixes(self.settings, self._machines, self.trace, requests)
                if self.options.prefixes
                else None
            ),
            junctions=junction_rows(self._groups, self._trees, self.settings.cache.block_size_tokens),
            schedule=self._schedule(),
            fleet_changes=self._changes.noted,
            plugins=summed(self._plugins),
        )

    @property
    def _steps(self) -> int:
        return sum(replica.steps for replica in self.replicas)

    def _counted(self) -> Mark:
        for replica in self.replicas:
            replica.count_moved_bytes()
        found = counters(self.replicas, self.cluster.pools.receiving, self._index, self.channels)
        if self.settings.cache.groups is not None:
            found |= group_counters(self.settings.cache.groups, self._groups.values())
        found |= self._changes.counters()
        found |= self._retention.counts
        if self._pool is not None:
            self._count_pool()
            found |= pool_counters(self._pool, self.settings)
        now = self.engine.now_ns
        return Mark(
            inter_token_latencies(self.replicas),
            found,
            tuple(channel_use(name, channel, now) for name, channel in self.channels.items()),
            tuple(use for replica in self.replicas for use in tier_uses(self.settings, replica)),
        )

    def _schedule(self) -> dict[str, Any] | None:
        if not self.options.schedule:
            return None
        from kvcache_sim.simulation.schedule import written_down

        return written_down(self.replicas, self.trace)

    def _count_pool(self) -> None:
        """Report the shared pool's reads and writes in the core to its Python object."""
        if self.cluster.pools.native is not None:
            self.cluster.pools.native.count_pool()


def _refuse(settings: ClusterSettings, options: RunOptions) -> None:
    """Raise UsageError for settings that the stores do not support, and for prefixes without a tree."""
    refuse_beyond_store(settings)
    if options.prefixes and (settings.cache.semantics != "tree" or settings.cache.groups is not None):
        got = settings.cache.semantics + " of cache groups" * (settings.cache.groups is not None)
        raise UsageError("no global prefix store", "--prefixes", got, "cache.semantics tree")
    if options.regret and settings.handover.decide != "always":
        expected = "handover.decide always"
        raise UsageError("no regret of requests that pass the router by", "--regret", expected=expected)


def _channels(settings: ClusterSettings) -> Channels:
    machines = settings.machines
    return Channels(
        settings.channels,
        settings.network,
        settings.handover.network,
        by_event=settings.movement.read_buffer_layers is not None,
        used=any(len(machine.tiers) > 1 or machine.role == "prefill" for machine in machines),
    )


def simulate(
    settings: ClusterSettings,
    requests: Trace | TraceStream,
    observer: Observer | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
    tables: RunTables | None = None,
) -> Run:
    """Simulate a trace on a cluster and return the measurements.

    A stream is read during the run (see ``can_stream``). ``tables`` receive events and rows of requests
    during the run; the last events are in the returned run. Raises UsageError for settings that do not fit
    the trace; InvariantError for a violated invariant.
    """
    if options.engine != "native":
        from kvcache_sim.simulation.spec_simulation import simulate_by_spec

        trace = requests.whole() if isinstance(requests, TraceStream) else requests
        return simulate_by_spec(settings, trace, observer, options, tables)
    simulation = Simulation(settings, requests, options)
    if tables is not None:
        simulation.recorder.stream_events(tables.take_events)
        if tables.digest is not None:
            simulation.recorder.stream_rows(tables.take_rows, tables.digest)
    return simulation.run(observer)
