"""The event loop of a replica.

At a step boundary: end the step, compose the next one (``scheduler``), start it when its room and its KV are
there (``next_step``). Between boundaries: arrivals, and transfers that change the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.prefetch.policy import Candidate
from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.engine import BOUNDARY, Event
from kvcache_sim.serving.batch_contract import Batch
from kvcache_sim.serving.ranks import Ranks
from kvcache_sim.serving.replica.arrival_path import ArrivalPath
from kvcache_sim.serving.replica.contract import Load
from kvcache_sim.serving.replica.copy_cost import CopyCost
from kvcache_sim.serving.replica.handing_over import HandsOver
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.replica.next_step import NextStep
from kvcache_sim.serving.replica.scheduler import Scheduler
from kvcache_sim.serving.sequence import Arrival, SequenceState
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.store_check import check_store
from kvcache_sim.tiers import TIERS


class Replica:
    """One engine instance: serves requests from one machine's cache.

    ``checks``: whether the store's invariants are checked at every boundary (``--check full``).
    """

    def __init__(
        self,
        cache: Machine,
        settings: ReplicaSettings,
        batch: Batch,
        scheduler: Scheduler,
        milestones: Milestones,
        checks: bool,
    ) -> None:
        self.machine = cache.number
        self.settings = settings
        self.cache = cache.cache
        self.store = cache.store
        self.mover = cache.mover
        self.engine = cache.mover.engine
        self.prefetcher = cache.prefetcher
        self.remote = cache.remote
        #: How many tiers the machine has.
        self.tiers = len(cache.tiers)
        self.batch = batch
        self.scheduler = scheduler
        self.milestones = milestones
        self.load: Load = milestones
        self.running = scheduler.running
        self._arrivals = ArrivalPath(cache, settings, milestones, self._enqueue)
        self._copies = CopyCost(settings) if settings.charges_copies else None
        if self._copies is not None:
            self.mover.when_submitted(self._copies.sent)
        self.step = NextStep(self.mover, batch, scheduler.running, scheduler.late, self._start, self._copies)
        #: Set where requests go on elsewhere after their prompt.
        self.sender: HandsOver | None = None
        self._most_blocks = self.store.room(0).capacity_blocks - cache.kept_free_blocks
        self._needs = cache.most_blocks
        self._checks = checks
        self.records_all = milestones.records_all
        #: The write policies, where they want to know of commits.
        self._write = cache.writes if cache.writes is not None and cache.writes.at_commit else None
        #: The store, where it writes down what steps compute by rules of its own.
        self._offers = cache.offers
        #: Copies on their way that the next step waits for (``through-sync``).
        self._written: set[int] = set()
        self._boundary: Event | None = None
        self._stepping = False
        #: Set where the replica is a rank of a larger engine.
        self._ranks: Ranks | None = None
        #: Requests that were sent here and have not left the cluster.
        self._sent: dict[int, SequenceState] = {}
        milestones.when_closed(self.left)
        self.mover.schedule_for(self)
        if milestones.records_all:
            batch.log_steps()
            self.store.log_evictions()
            self.mover.when_sent(self._log_transfer)

    def hand_over_by(self, sender: HandsOver) -> None:
        """Let every request that goes on generating do so on another machine."""
        self.sender = sender
        self.scheduler.decode_elsewhere()

    def step_with(self, ranks: Ranks) -> None:
        """Let its steps begin and end with those of the other ranks of its engine."""
        self._ranks = ranks

    # -- arrivals

    def arrive(self, arrival: Arrival) -> None:
        """Take a request over; it queues once the scheduler has it and it has been looked up."""
        sequence = SequenceState.of(arrival, self.milestones.outcomes.trace)
        sequence.progress = self
        self._sent[arrival.request] = sequence
        self._arrivals.arrived(sequence)

    def left(self, s: SequenceState) -> None:
        """Forget a request that was sent here and is closed, wherever that happened."""
        self._sent.pop(s.request, None)

    def abort(self, request: int) -> int | None:
        """Let a request go that was sent here, its client having given it up.

        What waits leaves at once; what runs at the end of its step, what loads when its KV has come, what is
        handed over at the end of its first step there. Nothing happens where it is done. Returns the decode
        machine that has to be told so (``drop``), None where there is none.
        """
        s = self._sent.get(request)
        if s is None or s.given_up:
            return None
        s.given_up = True
        if s.decode_machine >= 0:
            return s.decode_machine
        self.drop(s.request, s)
        return None

    def drop(self, request: int, state: SequenceState | None = None) -> None:
        """Let a request go that is here, wherever it was sent first."""
        s = self.running.get(request) if state is None else state
        if s is None:  # on its way here: it leaves after its first step
            return
        now = self.engine.now_ns
        self.catch_up(now)
        if self.scheduler.give_up(s, now):
            self.go_on(now)
        elif self._stepping:
            self._end_stretch(now)
        else:
            self.wake(now)

    def _end_stretch(self, seen_ns: int) -> None:
        if self._ranks is not None:
            return  # every step of a rank is one
        end = self.batch.interrupt(self.store, seen_ns)
        assert self._boundary is not None
        if end < self._boundary[0]:
            self.engine.cancel(self._boundary)
            self._boundary = self.engine.schedule(end, BOUNDARY, self.machine, self._at_boundary)

    def _enqueue(self, sequence: SequenceState) -> None:
        now = self.engine.now_ns
        if self.prefetcher is not None:
            self.prefetch(sequence.request, sequence.prompt_num_tokens, "queued")
        self.scheduler.enqueue(sequence)
        if self.scheduler.looks_at_queue:
            self.catch_up(now)
            self.scheduler.protect_waiting()
        if not self.scheduler.refused:
            self.wake(now)

    # -- what changes between boundaries

    def wake(self, seen_ns: int) -> None:
        """Make sure that a boundary comes as soon as the scheduler could do something new.

        ``seen_ns``: iterations that begin before it are past: now, or a nanosecond later for what is heard
        after the boundaries of this instant.
        """
        if self._ranks is not None:
            self._ranks.wake()
            return
        if not self._stepping:
            if self._boundary is None and not self.step.waits:
                now = self.engine.now_ns
                self._boundary = self.engine.schedule(now, BOUNDARY, self.machine, self._at_boundary)
        elif self.scheduler.could_admit():
            self._end_stretch(seen_ns)

    def computed_tokens(self, request: int) -> int | None:
        """Return how many of a running request's tokens have KV now; None where it does not run."""
        self.catch_up(self.engine.now_ns)
        return self.batch.computed_tokens(request)

    def catch_up(self, now_ns: int) -> None:
        """Run the iterations that began before now, so that the store is as it is now."""
        if self._stepping:
            self.batch.advance(self.store, now_ns)

    def moved(self) -> None:
        """Go on: KV or room has come."""
        self.go_on(self.engine.now_ns)

    def go_on(self, seen_ns: int) -> None:
        """Send what can go now, and compose a step as soon as one is possible. ``seen_ns`` as in ``wake``."""
        self.mover.issue()
        if self.scheduler.try_again():
            self.wake(seen_ns)

    def release(self, s: SequenceState, lease: int, seen_ns: int) -> None:
        """Give up what was held for a request that has been handed over."""
        self.catch_up(seen_ns)
        self.scheduler.release(s, lease, self.engine.now_ns)
        self.go_on(seen_ns)

    def share(self, s: SequenceState, blocks: int, now: int) -> None:
        """Share the first blocks of a request that were received from elsewhere, as if computed here."""
        start = self.store.depth(s.lease)
        if blocks > start:
            self.store.commit(s.lease, blocks, (now, now))
            if self._write is not None:
                self._write_committed(s.lease, (start, blocks), now)
                self.mover.issue()

    # -- the boundary

    def end_step(self, now: int) -> None:
        """End the step that is running, if one is."""
        if self._stepping:
            self._stepping = False
            self._end_step(now)
        if self.scheduler.given_up:
            self.scheduler.let_go(now)

    def compose(self, now: int) -> int | None:
        """Compose a rank's next step and return what it would take alone, in ns; None where nothing runs."""
        self.scheduler.compose(now)
        if self._checks:
            check_store(self.store, self.machine, self.engine.now_ns)
        return self.batch.step_ns() if len(self.batch) else None

    def start_step(self, now: int, duration_ns: int) -> None:
        """Start a rank's composed step, which takes as long as that of the slowest rank."""
        self.batch.start(self.store, now, duration_ns - self.batch.step_ns())
        self._stepping = True

    def _at_boundary(self, _: object) -> None:
        self._boundary = None
        now = self.engine.now_ns
        self.end_step(now)
        room = self.scheduler.compose(now)
        if len(self.batch):
            self.step.prepare((*room, *self._written), now)
        if self._checks:
            check_store(self.store, self.machine, self.engine.now_ns)

    def _end_step(self, now: int) -> None:
        compute = 0
        if self._write is not None or self._offers is not None:
            self.batch.advance(self.store, now)
            compute = self.batch.step_ns()
        first, finished, committed = self.batch.end(self.store)
        if self.milestones.tell_tokens is not None and (later := self.batch.take_later_tokens()):
            self.milestones.tell_tokens(later)
        if self._offers is not None:
            self._offers.step_computed([s.lease for s in self.running.values()], now)
        if committed or self._offers is not None:
            for request, start, past in committed:
                self._write_committed(self.running[request].lease, (start, past), now)
            self.mover.issue((now - compute + compute // self.cache.num_layers, now))
        for request in first:
            s = self.running[request]
            if self.sender is not None and self.sender.takes(s):
                self.sender.prompt_computed(s, now)
            else:
                self.milestones.prefilled(s, now)
                self.milestones.first_token(s, now)
        self.scheduler.step_ended(finished, now)

    def _write_committed(self, lease: int, blocks: tuple[int, int], now: int) -> None:
        assert self._write is not None
        move = self._write.committed(lease, blocks, now)
        if move is not None and self._write.delays_step:
            self._written.add(move)
            # Its number is used again once it is done, maybe before a step is composed.
            self.mover.when_done[move] = partial(self._written.discard, move)

    def _start(self, begin_ns: int, stall_ns: int) -> None:
        now = self.engine.now_ns
        end = self.batch.start(self.store, begin_ns, stall_ns)
        self._stepping = True
        streams = self.sender is not None and self.sender.streams
        alone = streams or self._copies is not None or self._offers is not None
        if alone or self.scheduler.wants_boundary():
            end = self.batch.interrupt(self.store, now)
        if self._copies is not None:
            self._copies.step_started(end)
        if self.sender is not None and streams:
            self.sender.step_started(end)
        self._boundary = self.engine.schedule(end, BOUNDARY, self.machine, self._at_boundary)

    def run_ahead(self) -> None:
        """Do not: what it does is heard at once."""

    # -- prefetching

    def prefetch(self, request: int, tokens: int, occasion: str) -> None:
        """Copy a request's blocks up to the cpu, where the prefetch policy wants that on this occasion."""
        if self.prefetcher is not None and occasion in self.prefetcher.policy.occasions:
            now = self.engine.now_ns
            self.catch_up(now)
            limit = self.cache.matchable_blocks(tokens)
            blocks = self.prefetcher.policy.blocks(Candidate(occasion, request, tokens, limit, now))
            if blocks:
                self.prefetcher.start(request, blocks, now)

    @property
    def prefetches_sessions(self) -> bool:
        """Whether a paused session's blocks may be copied up before its next turn."""
        return self.prefetcher is not None and "session" in self.prefetcher.policy.occasions

    # -- what routers, the cluster and recorders ask

    def when_tokens(self, tell: Callable[[Sequence[int]], None]) -> None:
        """Tell the requests of tokens that come out here from now on, those of one step together."""
        self.milestones.when_tokens(tell)
        self.batch.log_later_tokens()

    def when_closed(self, tell: Callable[[int], None]) -> None:
        """Tell the number of each request that leaves this machine from now on."""
        self.milestones.when_closed(lambda s: tell(s.request))

    def when_prefilled(self, tell: Callable[[int, int], None]) -> None:
        """Tell of each request whose prompt is computed from now on: its number and its prompt's tokens."""
        self.milestones.when_prefilled(lambda s: tell(s.request, s.prompt_num_tokens))

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many requests wait, run and wait for KV, and the tokens generated so far."""
        scheduler, generated = self.scheduler, self.batch.generated_tokens
        return scheduler.queued, len(self.running), scheduler.on_their_way, generated

    @property
    def steps(self) -> int:
        """Iterations so far."""
        return self.batch.steps

    def accepted(self) -> tuple[int, int, list[int]]:
        """Return decode steps with drafts, tokens drafted, and tokens accepted by position."""
        return self.batch.accepted()

    def itl(self) -> tuple[list[int], list[int], int, int, int, int]:
        """Return the histogram of times between tokens: edges, counts, count, sum, min, max."""
        return self.batch.itl()

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether an empty GPU would have room for that many tokens, and for drafts behind them."""
        return self._needs(kv_tokens + self.settings.drafted_tokens) <= self._most_blocks

    def flush_records(self) -> None:
        """Hand what the native side kept to the recorder."""
        recorder = self.milestones.recorder
        for step in self.batch.take_steps():
            recorder.log_step(self.machine, step)
        for now_ns, tier, blocks in self.store.take_evictions():
            recorder.log_eviction(self.machine, TIERS[tier], now_ns, blocks)

    def _log_transfer(self, transfer: Transfer) -> None:
        self.milestones.recorder.log_transfer(transfer, self.machine)
