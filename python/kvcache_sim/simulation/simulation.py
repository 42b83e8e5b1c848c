"""One simulation: build the cluster, run it, return what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvcache_sim.cache.machine import Machine, MachineBuilder, MachineTiers
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.cache.store import GpuStore, GroupStore, KeepsSessions, TieredStore
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.channels.cluster import Channels
from kvcache_sim.engine import Engine, beyond_time
from kvcache_sim.errors import InvariantError, UsageError
from kvcache_sim.metrics.cache_groups import group_counters, junction_rows
from kvcache_sim.metrics.digests import digest_of_events
from kvcache_sim.metrics.recorder import RunRecorder
from kvcache_sim.metrics.run import ColumnData, Mark, Observer, Progress, Run
from kvcache_sim.metrics.run_tables import RunTables
from kvcache_sim.metrics.sampler import SAMPLES, Sampler
from kvcache_sim.policies.plugins.watchdog import watching
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.handover.pools import Pools
from kvcache_sim.serving.machine import build_replicas
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.replica.contract import AnyReplica
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.replica.observation import Observation
from kvcache_sim.serving.router.contract import Router
from kvcache_sim.serving.router.index import RouterIndex
from kvcache_sim.serving.router.look import look_at
from kvcache_sim.serving.router.registry import TIMED, router_maker
from kvcache_sim.serving.router.views import Views
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.serving.store_limits import refuse_beyond_store
from kvcache_sim.simulation.end_checks import check_rows, check_stores
from kvcache_sim.simulation.keepers import Keepers
from kvcache_sim.simulation.marks import Marks
from kvcache_sim.simulation.measured import channel_use, counters, inter_token_latencies, tier_uses
from kvcache_sim.simulation.options import DEFAULT_OPTIONS, RunOptions
from kvcache_sim.simulation.windows import Windows
from kvcache_sim.tiers import COMPUTE, TIERS
from kvcache_sim.workload.readers.stream import TraceStream
from kvcache_sim.workload.trace import Trace

if TYPE_CHECKING:
    from kvcache_sim.cache.operations.listing import ListedBlock
    from kvcache_sim.serving.engine_scheduler.replica import EngineReplica
    from kvcache_sim.serving.membership.losses import Losses
    from kvcache_sim.serving.membership.membership import Membership
    from kvcache_sim.serving.membership.scaling import Scaling
    from kvcache_sim.serving.replica.native import NativeReplica
    from kvcache_sim.serving.router.regret import Watched
    from kvcache_sim.workload.block_tokens import BlockTokens

_EVENTS_PER_GLANCE = 20_000


class Simulation:
    """A cluster about to run one trace."""

    #: Whether somebody hears of each token as it comes.
    _hears_tokens = False

    def __init__(self, settings: ClusterSettings, requests: Trace | TraceStream, options: RunOptions) -> None:
        stream = requests if isinstance(requests, TraceStream) else None
        trace = requests.first if isinstance(requests, TraceStream) else requests
        refuse_beyond_store(settings)
        make_router = router_maker(settings.router.policy)
        self.settings, self.trace, self.options = settings, trace, options
        if options.prefixes and settings.cache.semantics != "tree":
            raise UsageError(
                "no global prefix store", "--prefixes", settings.cache.semantics, "cache.semantics tree"
            )
        self.engine = Engine(len(settings.machines))
        self.recorder = RunRecorder(options.record_window_ns, check_rows)
        by_event = settings.movement.read_buffer_layers is not None
        handovers = settings.handover.network
        stores = StoreMaker(settings.cache, trace, lambda: self.engine.now_ns, options.backend)
        self._watchdog, self._orders, self._stores = stores.watchdog, stores.orders, stores
        self.digests = [stores.digest() for _ in settings.machines]
        native = options.backend == "native" and not stores.in_python
        stretches = native and not options.step_every_iteration
        stretches = stretches and not len(trace.abort_after_ns)  # the core lets no request go
        wires = settings.channels, settings.network
        self.channels = Channels(*wires, self.engine, handovers, by_event, native=stretches)
        records_all = options.record_window_ns is not None
        observation = Observation(
            stretches, options.check == "full", records_all, native and self._hears_tokens
        )
        counted = settings.in_tokens() if stores.simplified else settings
        builder = MachineBuilder(stores, self.channels, self.engine, counted.cache, settings.movement)
        #: By machine the store, where it tells who uses its prefixes.
        self._tell_uses: list[TieredStore | KeepsSessions | None] = []
        #: By machine its pool of cache groups, where it is one.
        self._groups: dict[int, GroupStore] = {}
        trees: list[TieredStore | None] = []
        caches: list[Machine] = []
        told: list[Outcomes] = []
        for machine in counted.machines:
            tiers = MachineTiers(machine.tiers, machine.edge_channels, machine.edge_rails)
            cache = builder.build(tiers)
            caches.append(cache)
            told.append(Outcomes(trace, settings.cache, cache.views, stores.gate_keys, cache.sessions))
            self._tell_uses.append(cache.tree or cache.sessions)
            if cache.groups is not None:
                self._groups[cache.number] = cache.groups
            trees.append(cache.tree if len(cache.tiers) > 1 else None)
        self.replicas: list[AnyReplica] = build_replicas(
            caches, counted, self.channels, told, self.recorder, observation
        )
        self._scheduled: NativeReplica | EngineReplica[Any] | None = None
        if options.schedule:
            from kvcache_sim.simulation.schedule import write_down

            self._scheduled = write_down(self.replicas)
        views = Views(trace, counted, self.replicas, self.engine)
        pools = Pools(self.replicas, counted, self.channels, self.engine, self.recorder, views)
        look = look_at(pools.routed, self.engine)
        self._index: RouterIndex | None = None

        def empty_index() -> list[GpuStore]:
            tier = TierSettings(TIERS[COMPUTE], settings.router.index_blocks)
            return [stores.make_lone(tier) for _ in pools.routed]

        if settings.router.index_blocks is not None and settings.router.index_kind == "truth":
            self._index = RouterIndex(look, empty_index(), pools.routed, self.engine, settings.router)
            look = self._index.look
        seen = [trees[replica.machine] for replica in pools.routed] if self._index is None else ()

        def whole_router() -> Router:
            return make_router(views.of(pools.routed, settings.router, settings.seed, look, seen))

        def forget() -> None:
            if self._index is not None:
                self._index.forget(empty_index())

        self._losses: Losses | None = None
        if settings.membership.loses_copies:
            from kvcache_sim.serving.membership.losses import Losses

            plan, own = settings.membership, [cache.tree for cache in caches]
            self._losses = Losses(plan, self.replicas, own, self.engine, self._done, len(trace))
            views.when_closed.append(self._losses.closed)
        router = whole_router() if self._losses is None else self._losses.around(whole_router, forget)
        self._watched: Watched | None = None
        if options.regret:
            from kvcache_sim.serving.router.regret import Watched

            times = [settings.machines[replica.machine].step_time for replica in pools.routed]
            self._watched = Watched(router, pools.routed, times, look_at(pools.routed, self.engine))
            views.when_closed.append(self._watched.closed)
            router = self._watched
        self.cluster = Cluster(trace, self.replicas, pools, router, self.recorder, self.digests)
        self.membership: Membership | None = None
        if settings.membership.changes_members:
            from kvcache_sim.serving.membership.membership import Membership

            def router_among(members: Sequence[AnyReplica]) -> Router:
                own = [trees[replica.machine] for replica in members]
                among = look_at(members, self.engine)
                return make_router(views.of(members, settings.router, settings.seed, among, own))

            self.membership = Membership(settings.membership, self.replicas, router_among, self.engine)
            self.cluster.change_members_by(self.membership)
        kept = [cache.tree for cache in caches]
        self._scaling: Scaling | None = None
        if self.membership is not None and settings.membership.scaling is not None:
            from kvcache_sim.serving.membership.scaling import Scaling

            scaling = settings.membership.scaling
            self._scaling = Scaling(scaling, self.membership, self.replicas, kept, trace, self.engine)
            views.when_closed.append(self._scaling_is_over)
        self._keepers = Keepers(settings, trace, self.cluster, kept)
        if settings.offline is not None:
            from kvcache_sim.simulation.offline import work_off

            work_off(settings.offline, len(trace), self.cluster, kept)
        nobody_hears = (
            not self._keepers.hear
            and self._index is None
            and not views.when_closed
            and settings.handover.router not in TIMED
        )
        if self.cluster.open_loop and nobody_hears and self._machines_are_apart():
            for replica in self.replicas:
                replica.run_ahead()
        span = int(trace.arrival_ns.max()) if len(trace) else 0
        self.sampler = Sampler(self.engine, self.replicas, self.channels, span // SAMPLES, self._done)
        self._marks = Marks(self.engine, self.sampler, options.marks_ns, self._counted)
        if self.membership is not None:
            self.membership.when_lost.append(self.sampler.leave_out)
        self._span_ns = span if stream is None else 0
        self._windows: Windows | None = None
        if stream is not None:
            self._windows = Windows(stream, self.replicas, stores)
            self.cluster.read_on(self._windows.next)

    def match_prefix(
        self, machine: int, request: int, tokens: BlockTokens | None = None
    ) -> tuple[ListedBlock, ...]:
        """Return each block that a request's prompt would hit on a machine now (see ``list_hit``).

        UsageError for a machine or a request that there is not.
        """
        from kvcache_sim.serving.listing import list_hit
        from kvcache_sim.workload.block_names import BlockNames

        for what, number, count in (
            ("machine", machine, len(self.replicas)),
            ("request", request, len(self.trace)),
        ):
            if not 0 <= number < count:
                raise UsageError(f"no such {what}", got=str(number), expected=f"0 to {count - 1}")
        names = BlockNames(self.trace, self.settings.cache.block_size_tokens)
        prompt = int(self.trace.input_tokens[request])
        return list_hit(self.replicas, machine, (request, prompt), names, tokens)

    def _machines_are_apart(self) -> bool:
        """Return whether no machine takes note of another one, or all their events have one order."""
        if any(machine.role == "prefill" for machine in self.settings.machines):
            return True
        names = [set(machine.edge_channels.values()) for machine in self.settings.machines]
        apart = sum(map(len, names)) == len(set().union(*names))
        return apart and self.settings.movement.lookup == "local"

    def _scaling_is_over(self, _: int) -> None:
        """Let no machine come or go after the last request."""
        if self._scaling is not None and self._done():
            self._scaling.over()

    def _done(self) -> bool:
        return self.cluster.closed == self._requests

    @property
    def _requests(self) -> int:
        """Requests that are known of."""
        return len(self.trace) if self._windows is None else self._windows.requests

    def run(self, observer: Observer | None = None) -> Run:
        """Run to the end; UsageError when that lies too far off, InvariantError when a promise was broken."""
        try:
            self._run(observer)
        except OverflowError:  # a time that no 64-bit integer holds was about to reach the core
            raise beyond_time() from None
        if observer is not None:
            observer.update(self._progress())
        for replica in self.replicas:
            replica.flush_records()
        self._check_end()
        return self._finished()

    def _run(self, observer: Observer | None) -> None:
        with watching(self._watchdog):
            self.cluster.start()
            if self._losses is not None:
                self._losses.start()
            if self._scaling is not None:
                self._scaling.start()
            self.sampler.start()
            self._marks.start()
            while not self.engine.run(max_events=_EVENTS_PER_GLANCE):
                if observer is not None:
                    observer.update(self._progress())

    def _progress(self) -> Progress:
        used: dict[str, float] = {}
        for level, tier in enumerate(TIERS):
            rooms = [r.store.room(level) for r in self.replicas if r.tiers > level]
            capacity = sum(room.capacity_blocks for room in rooms)
            if rooms and capacity < 1 << 60:
                used[tier] = 1 - sum(room.free_blocks for room in rooms) / capacity
        shares = self.recorder.hit_shares()
        now = max(self.engine.now_ns, 1)
        return Progress(
            now_ns=self.engine.now_ns,
            done_requests=self.cluster.closed,
            total_requests=self._requests,
            events=self.engine.processed,
            tiers=used,
            token_hit_rate=sum(shares.values()),
            queue=sum(r.counts()[0] for r in self.replicas),
            end_ns=self._span_ns,
            tier_hit_rates=shares,
            channels={name: min(c.busy_ns / now, 1.0) for name, c in self.channels.items()},
        )

    def _check_end(self) -> None:
        n, closed = self._requests, self.cluster.closed
        if closed != n:
            raise InvariantError("I1: requests were left behind", got=f"{closed} of {n}")
        self.recorder.end()
        lost = self.membership.lost if self.membership is not None else ()
        check_stores(replica for replica in self.replicas if replica.machine not in lost)

    def _finished(self) -> Run:
        requests = self.recorder.request_columns()
        lanes = [(d.value, r.store.digest) for d, r in zip(self.digests, self.replicas, strict=True)]
        counted = self._counted()
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
            events_processed=self.engine.processed,
            end_ns=self.engine.now_ns,
            warnings=tuple(self._orders.remarks()),
            channels=counted.channels,
            tiers=counted.tiers,
            prefixes=self._prefixes(requests) if self.options.prefixes else None,
            junctions=junction_rows(self._groups) if self._groups else None,
            schedule=self._schedule(),
            fleet_changes=() if self._scaling is None else tuple(self._scaling.changes),
        )

    def _counted(self) -> Mark:
        for replica in self.replicas:
            if isinstance(replica, NativeReplica):
                replica.count_moved_bytes()
        found = counters(self.replicas, self.cluster.pools.routed, self._index, self.channels)
        if self.settings.cache.groups is not None:
            found |= group_counters(self.settings.cache.groups, self._groups.values())
        if self.membership is not None:
            found |= {f"membership.{name}": n for name, n in self.membership.counts.items()}
        if self._losses is not None:
            found |= {f"membership.{name}": n for name, n in self._losses.counts.items()}
        if self._scaling is not None:
            found |= {f"membership.{name}": n for name, n in self._scaling.counts.items()}
        found |= self._keepers.counts
        now = self.engine.now_ns
        return Mark(
            inter_token_latencies(self.replicas),
            found,
            tuple(channel_use(name, channel, now) for name, channel in self.channels.items()),
            tuple(use for replica in self.replicas for use in tier_uses(self.settings, replica)),
        )

    def _schedule(self) -> dict[str, Any] | None:
        if self._scheduled is None:
            return None
        from kvcache_sim.simulation.schedule import written_down

        return written_down(self._scheduled, self.trace)

    def _prefixes(self, requests: dict[str, ColumnData]) -> dict[str, ColumnData]:
        from kvcache_sim.metrics.prefix_entries import prefix_entries

        block = self.settings.cache.block_size_tokens
        unit = self.replicas[0].cache.block_size_tokens  # 1 under simplified accounting
        prompts = self.trace.input_tokens

        def resident(machine: int, request: int) -> list[tuple[int, int]]:
            store = self._tell_uses[machine]
            if store is None:
                return []
            parts = store.uses(request, int(prompts[request]) // block * block // unit)
            return [(end * unit, users) for end, users, _ in parts]

        return prefix_entries(requests, self.trace, resident, block)


def simulate(
    settings: ClusterSettings,
    requests: Trace | TraceStream,
    observer: Observer | None = None,
    options: RunOptions = DEFAULT_OPTIONS,
    tables: RunTables | None = None,
) -> Run:
    """Simulate a trace on a cluster and return what was measured.

    A stream is read while the run goes on; ``can_stream`` says where that is possible. ``tables`` get events,
    and rows of requests, as they come; the last events are the run's own.
    Errors: UsageError for settings that do not fit the trace; InvariantError when a promise was broken.
    """
    simulation = Simulation(settings, requests, options)
    if tables is not None:
        simulation.recorder.let_events_leave(tables.take_events)
        if tables.digest is not None:
            simulation.recorder.let_rows_leave(tables.take_rows, tables.digest)
    return simulation.run(observer)
