"""One run by the specification (``--engine spec``): the same ``Run``, with the same digests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from kvcache_sim.base.errors import InvariantError, UsageError
from kvcache_sim.base.tiers import COMPUTE
from kvcache_sim.cache.moved import MovedBytes
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.cache.store import MovingStore, check_store
from kvcache_sim.cache.stores import StoreMaker
from kvcache_sim.engine import beyond_time
from kvcache_sim.metrics.digests import MachineHashes, digest_of_events
from kvcache_sim.metrics.recorder import RunRecorder
from kvcache_sim.metrics.run import EngineUse, Mark, Observer, Progress, Run
from kvcache_sim.metrics.run_tables import RunTables
from kvcache_sim.metrics.sampler import SAMPLES, Sampler
from kvcache_sim.serving.replica.contract import MeasuredReplica
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation.context import answers_in_context
from kvcache_sim.simulation.end_checks import check_channels, check_rows, check_stores
from kvcache_sim.simulation.marks import Marks, busy_shares, used_shares
from kvcache_sim.simulation.measured import (
    channel_use,
    counters,
    inter_token_latencies,
    tier_uses,
)
from kvcache_sim.simulation.options import RunOptions
from kvcache_sim.simulation.spec_demand import MeasuredSimulator, records_into
from kvcache_sim.simulation.spec_invariants import CheckedStore, CheckedTokens
from kvcache_sim.spec.keys import Keys
from kvcache_sim.spec.lookups import LookUps
from kvcache_sim.spec.simulator import Machine, MakeStore, Simulator
from kvcache_sim.workload.key_arrays import key_arrays
from kvcache_sim.workload.trace import NOT_GIVEN, Trace

#: Events between two progress updates.
_EVENTS_PER_GLANCE = 20_000


class Seen:
    """A machine of the specification with the interface that samplers and counters expect of replicas."""

    def __init__(self, machine: Machine, settings: ClusterSettings) -> None:
        self._machine = machine
        self.machine = machine.number
        self.settings = settings.machines[machine.number].replica
        self.tiers = machine.tiers
        # what records evictions of single blocks is asked of the core's stores alone
        self.store = cast(MovingStore, machine.store)
        self.load: Any = machine.load

    @property
    def moved(self) -> MovedBytes:
        """The bytes that the machine moved."""
        mover = self._machine.mover
        return MovedBytes(mover.edge_bytes, mover.read_bytes, mover.written_bytes)

    @property
    def prefetched_blocks(self) -> int | None:
        """Prefetched blocks so far; None without prefetching."""
        return None

    def duplicates(self, tier: int) -> int:
        """Return the number of a lower tier's blocks that also have a copy on a faster tier."""
        duplicates: int = self.store.duplicates(tier)
        return duplicates

    @property
    def steps(self) -> int:
        """Iterations so far."""
        return self._machine.batch.steps

    def catch_up(self, now_ns: int) -> None:
        """Do nothing: every step is an event."""

    def counts(self) -> tuple[int, int, int, int]:
        """Return the numbers of waiting, running and loading requests, and the tokens generated so far."""
        scheduler, batch = self._machine.scheduler, self._machine.batch
        return scheduler.queued, len(scheduler.running), scheduler.in_transit, batch.generated_tokens

    def accepted(self) -> tuple[int, int, list[int]]:
        """Return zeros: no tokens are drafted."""
        return 0, 0, []

    def itl(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return the histogram of inter-token latencies: edges, counts, count, sum, min, max."""
        gaps, buckets = self._machine.batch.token_gaps_ns, dict[int, int]()
        for gap, times in gaps.items():
            shift = max(gap.bit_length() - 11, 0)
            buckets[gap >> shift << shift] = buckets.get(gap >> shift << shift, 0) + times
        edges = sorted(buckets)
        total = sum(gap * times for gap, times in gaps.items())
        counts = [buckets[edge] for edge in edges]
        return edges, counts, sum(counts), total, min(gaps, default=0), max(gaps, default=0)


class SpecSimulation:
    """A cluster of the specification about to serve one trace.

    Raises UsageError for a trace with aborted requests or retention hints, which the specification lacks.
    """

    simulator_class: type[Simulator] = MeasuredSimulator
    seen_class = Seen

    def __init__(self, settings: ClusterSettings, trace: Trace, options: RunOptions) -> None:
        _refuse_options(options)
        if len(trace.abort_after_ns) and bool((trace.abort_after_ns != NOT_GIVEN).any()):
            raise _beyond("a client that aborts a request")
        if len(trace.retention):
            raise _beyond("a hint of what becomes of a request's blocks")
        trace = answers_in_context(settings, trace)
        self.settings, self.trace, self.options = settings, trace, options
        self.recorder = RunRecorder(None, check_rows)
        #: Creates the core's stores, if the specification runs over them.
        self._stores: StoreMaker | None = None
        if options.engine == "spec-plain" or settings.cache.accounting == "simplified":
            make_store = self._plain_stores()
        else:
            self._stores = StoreMaker(settings.cache, trace, settings.movement)
            make_store = self._make_store
        self.simulator = self.simulator_class(settings, trace, make_store, records_into(self.recorder))
        sim = self.simulator
        self.replicas: list[MeasuredReplica] = [
            self.seen_class(machine, settings) for machine in sim.machines
        ]
        span = int(trace.arrival_ns.max()) if len(trace) else 0
        self._span_ns = span
        self.sampler = Sampler(sim.engine, self.replicas, self._channels, span // SAMPLES, self._done)
        self._marks = Marks(sim.engine, self.sampler, options.marks_ns, self._counted)

    def _make_store(self, tiers: Sequence[Any], lookups: LookUps) -> Any:
        assert self._stores is not None
        settings = [TierSettings(tier.name, tier.capacity_blocks, tier.policy) for tier in tiers]
        return self._stores.make(settings, self._write_back(tiers)).gpu

    def _write_back(self, tiers: Sequence[Any]) -> list[bool]:
        """Return for each tier True if it writes its victims to the tier below."""
        return [True] * (len(tiers) - 1) + [False]

    def _plain_stores(self) -> MakeStore:
        """Return the constructor of the specification's own stores, all over the same keys."""
        cache = self.settings.cache
        keys = Keys(key_arrays(self.trace, cache.block_size_tokens))

        def make(tiers: Sequence[Any], lookups: LookUps) -> Any:
            capacities = [tier.capacity_blocks for tier in tiers]
            if cache.accounting == "simplified":
                return CheckedTokens(lookups, capacities[COMPUTE])
            store = self._plain_store(keys, capacities, tiers)
            store.overflow_waits = cache.overflow == "wait"
            store.by_event = self.options.check == "full"
            store.waits_for_loads = self.settings.movement.read_buffer_layers is None
            return store

        return make

    def _plain_store(self, keys: Keys, capacities: list[int | None], tiers: Sequence[Any]) -> CheckedStore:
        return CheckedStore(keys, capacities, [tier.policy for tier in tiers])

    @property
    def _channels(self) -> Any:
        """The channels in the form that measurements read."""
        return self.simulator.channels

    @property
    def _steps(self) -> int:
        """Iterations of all machines so far."""
        return sum(machine.batch.steps for machine in self.simulator.machines)

    def _done(self) -> bool:
        return self.simulator.closed == len(self.trace)

    def run(self, observer: Observer | None = None) -> Run:
        """Run to the end; UsageError beyond the last time, InvariantError for a violated invariant."""
        try:
            self._run(observer)
        except OverflowError:  # a time beyond 64 bits was about to reach the core's store
            raise beyond_time() from None
        if observer is not None:
            observer.update(self._progress())
        if not self._done():
            got = f"{self.simulator.closed} of {len(self.trace)}"
            raise InvariantError("I1: requests were left behind", got=got)
        self.recorder.end()
        self._check_end()
        return self._finished()

    def _check_end(self) -> None:
        for replica in self.replicas:
            if isinstance(replica.store, CheckedStore):
                replica.store.by_event = False
        check_stores(self.replicas)
        check_channels(self.replicas, None, self._channels, self.simulator.engine.now_ns)

    def _run(self, observer: Observer | None) -> None:
        engine, left = self.simulator.engine, _EVENTS_PER_GLANCE
        self.simulator.start()
        self.sampler.start()
        self._marks.start()
        checks = self.options.check == "full"
        while not engine.run(max_events=1 if checks else _EVENTS_PER_GLANCE):
            if checks:
                for replica in self.replicas:
                    check_store(replica.store, replica.machine, engine.now_ns)
            left -= 1 if checks else _EVENTS_PER_GLANCE
            if observer is not None and left <= 0:
                observer.update(self._progress())
                left = _EVENTS_PER_GLANCE

    def _progress(self) -> Progress:
        shares, now = self.recorder.hit_shares(), self.simulator.engine.now_ns
        return Progress(
            now_ns=now,
            finished_requests=self.simulator.closed,
            total_requests=len(self.trace),
            steps=self._steps,
            tiers=used_shares(self.replicas),
            token_hit_rate=sum(shares.values()),
            queue=sum(replica.counts()[0] for replica in self.replicas),
            end_ns=self._span_ns,
            tier_hit_rates=shares,
            channels=busy_shares(self._channels, now),
        )

    def _lanes(self) -> list[MachineHashes]:
        """Return for each machine the hashes of its arrivals and of its store."""
        sim = self.simulator
        return [
            MachineHashes(d.value, m.store.digest) for d, m in zip(sim.arrivals, sim.machines, strict=True)
        ]

    def _finished(self) -> Run:
        sim = self.simulator
        counted = self._counted()
        return Run(
            requests=self.recorder.request_columns(),
            series=self.sampler.columns(),
            events=self.recorder.event_columns(),
            left_outcomes=self.recorder.left_outcomes,
            counters={**counted.counters},
            itl_ns=counted.itl_ns,
            marks=self._marks.noted,
            digest_events=digest_of_events(self._lanes()),
            digest_results=self.recorder.results_digest(),
            engine=EngineUse(self.options.engine, self._steps, sim.engine.processed),
            end_ns=sim.engine.now_ns,
            warnings=() if self._stores is None else tuple(self._stores.orders.remarks()),
            channels=counted.channels,
            tiers=counted.tiers,
        )

    def _counters(self) -> dict[str, int]:
        routed = [self.replicas[machine.number] for machine in self.simulator.routed]
        return counters(self.replicas, routed, None, self._channels)

    def _counted(self) -> Mark:
        now = self.simulator.engine.now_ns
        return Mark(
            inter_token_latencies(self.replicas),
            self._counters(),
            tuple(channel_use(name, channel, now) for name, channel in self._channels.items()),
            tuple(use for replica in self.replicas for use in tier_uses(self.settings, replica)),
        )


def _refuse_options(options: RunOptions) -> None:
    """Raise UsageError for options that only the core supports."""
    asked = {
        "--record": (options.record_window_ns is not None, "it keeps no log of single evictions"),
        "--prefixes": (options.prefixes, "its stores do not list their entries"),
        "--schedule-digests": (options.schedule, "no seed asks for engines' own schedules"),
        "--regret": (options.regret, "it forecasts no choice that was not made"),
    }
    for option, (given, why) in asked.items():
        if given:
            raise UsageError("not covered by spec/", option, hint=f"{why}; --engine native has it")


def _beyond(got: str) -> UsageError:
    hint = "no seed asks for it; --engine native has it"
    return UsageError("not covered by spec/", "the trace", got, hint=hint)


def simulate_by_spec(
    settings: ClusterSettings,
    trace: Trace,
    observer: Observer | None,
    options: RunOptions,
    tables: RunTables | None,
) -> Run:
    """Simulate a trace by the specification; as ``simulation.simulate``."""
    simulation = SpecSimulation(settings, trace, options)
    if tables is not None:
        simulation.recorder.stream_events(tables.take_events)
        if tables.digest is not None:
            simulation.recorder.stream_rows(tables.take_rows, tables.digest)
    return simulation.run(observer)
