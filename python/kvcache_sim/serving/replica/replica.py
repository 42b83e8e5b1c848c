"""The event loop of a replica.

At a step boundary: end the step, let loaded requests join, give running sequences their tokens and blocks
(preempting the last when refused), admit from the queue while budget and places last, start the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.prefetch.policy import Candidate
from kvcache_sim.cache.prefetch.prefetcher import Prefetcher
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cache.store import BlockStore
from kvcache_sim.engine import ARRIVAL, BOUNDARY, Engine, Event
from kvcache_sim.serving.admission import Admitter
from kvcache_sim.serving.batch import Batch
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.replica.entrance import Entrance
from kvcache_sim.serving.replica.handing_over import HandsOver
from kvcache_sim.serving.replica.keeping import Keeping
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.replica.next_step import NextStep
from kvcache_sim.serving.sequence import SequenceState, Status
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.tiers import TIERS


class Replica:
    """The scheduler and the running batch of one machine."""

    def __init__(
        self,
        machine: int,
        settings: tuple[ReplicaSettings, CacheSettings],
        parts: tuple[BlockStore, Mover, Admitter, Batch],
        engine: Engine,
        recorder: Recorder,
        outcomes: Outcomes,
    ) -> None:
        self.machine = machine
        self.settings, self.cache = settings
        self.store, self.mover, self.admitter, self.batch = parts
        self._gpu_blocks = sum(self.store.room(0)[:4])
        self.engine = engine
        self.recorder = recorder
        self.running: dict[int, SequenceState] = {}
        self.milestones = Milestones(machine, self.store, recorder, outcomes)
        self.step = NextStep(self.mover, self.batch, self.cache.num_layers, self.running, self._start)
        self.entrance = Entrance(
            settings, self.admitter, self.batch, self.step, self.running, self.milestones
        )
        self.prefetcher: Prefetcher | None = None
        #: Decides what of a finished request is kept, where that is not everything.
        self.keeping: Keeping | None = None
        #: Set where requests go on elsewhere after their prompt.
        self.sender: HandsOver | None = None
        #: Called at the end of every boundary (``--check full``).
        self.check: Callable[[], None] | None = None
        self._gpu_blocks = sum(self.store.room(0)[:4])
        #: Blocks of the GPU that no request gets: SGLang keeps a page.
        self.kept_free_blocks = 0
        #: How many tiers the machine has.
        self.tiers = 1
        #: Whether a step is decided on while the one before it runs.
        self._looks_ahead = self.settings.async_scheduling != "none"
        #: Copies on their way that the next step waits for (``through-sync``).
        self._written: set[int] = set()
        self._boundary: Event | None = None
        self._stepping = False
        self.mover.schedule_for(self)

    # -- arrivals

    def arrive(self, sequence: SequenceState) -> None:
        """Take a request over; it queues once the scheduler has it and it has been looked up."""
        now = self.engine.now_ns
        self.milestones.arrived(sequence, now)
        if offset := self.settings.client_offset_ns:
            self.engine.schedule(now + offset, ARRIVAL, self.machine, self._received, sequence)
        else:
            self._received(sequence)

    def _received(self, sequence: SequenceState) -> None:
        now = self.engine.now_ns
        self.milestones.received(sequence, now)
        if self.cache.lookup_ns and self.cache.enabled:
            self.engine.schedule(now + self.cache.lookup_ns, ARRIVAL, self.machine, self._enqueue, sequence)
        else:
            self._enqueue(sequence)

    def _enqueue(self, sequence: SequenceState) -> None:
        self.milestones.looked_up(sequence, self.engine.now_ns)
        self.prefetch(sequence.request, sequence.prompt_num_tokens, "queued")
        self.entrance.waiting.append(sequence)
        if self.entrance.look_ahead is not None:
            self.catch_up(self.engine.now_ns)
            self.entrance.look_ahead.protect(self.entrance.waiting)
        if not self.entrance.refused:
            self.wake(self.engine.now_ns)

    def wake(self, seen_ns: int) -> None:
        """Make sure that a boundary comes as soon as the scheduler could do something new.

        ``seen_ns``: iterations that begin before it are past: now, or a nanosecond later for what is heard
        after the boundaries of this instant.
        """
        if not self._stepping:
            if self._boundary is None and not self.step.waits:
                now = self.engine.now_ns
                self._boundary = self.engine.schedule(now, BOUNDARY, self.machine, self._at_boundary)
        elif self.entrance.could_admit():
            end = self.batch.interrupt(self.store, seen_ns)
            assert self._boundary is not None
            if end < self._boundary[0]:
                self.engine.cancel(self._boundary)
                self._boundary = self.engine.schedule(end, BOUNDARY, self.machine, self._at_boundary)

    def catch_up(self, now_ns: int) -> None:
        """Run the iterations that began before now, so that the store is as it is now."""
        if self._stepping:
            self.batch.advance(self.store, now_ns)

    def moved(self) -> None:
        """Go on: KV or room has come."""
        self._try_again(self.engine.now_ns)

    def go_on(self, seen_ns: int) -> None:
        """Go on after room has come without a transfer. ``seen_ns`` as in ``wake``."""
        self.mover.issue()
        self._try_again(seen_ns)

    def _try_again(self, seen_ns: int) -> None:
        """Compose a step as soon as one is possible: a refused head may fit now."""
        self.entrance.refused = False
        if self.entrance.has_ready or self.entrance.has_waiting:
            self.wake(seen_ns)

    def let_go(self, s: SequenceState, lease: int, seen_ns: int) -> None:
        """Give up what was held for a request that has been handed over."""
        self.catch_up(seen_ns)
        self._release(s, lease)
        self.go_on(seen_ns)

    def share(self, s: SequenceState, blocks: int, now: int) -> None:
        """Share the first blocks of a request that were received from elsewhere, as if computed here."""
        start = self.store.depth(s.lease)
        if blocks > start:
            self.store.commit(s.lease, blocks)
            if self.entrance.writes and self.entrance.writes[0].at_commit:
                self._write_through(s.lease, (start, blocks), now)
                self.mover.issue()

    # -- the boundary

    def _at_boundary(self, _: object) -> None:
        self._boundary = None
        now = self.engine.now_ns
        if self._stepping:
            self._stepping = False
            self._end_step(now)
        self._compose_step(now)
        if self.check is not None:
            self.check()

    def _end_step(self, now: int) -> None:
        compute = 0
        writes = self.entrance.writes
        if writes and writes[0].at_commit:
            self.batch.advance(self.store, now)
            compute = self.batch.step_ns()
        first, finished, committed = self.batch.end(self.store)
        if committed:
            for request, start, past in committed:
                self._write_through(self.running[request].lease, (start, past), now)
            self.mover.issue((now - compute + compute // self.cache.num_layers, now))
        for request in first:
            self._prefilled(self.running[request], now)
        for request in finished:
            self._finish(self.running.pop(request), now)
        if self._looks_ahead:
            self.entrance.waiting.known_until_ns = self.batch.begin_ns

    def _write_through(self, lease: int, blocks: tuple[int, int], now: int) -> None:
        policy = self.entrance.writes[0]
        move = policy.committed(self.store, lease, blocks, now)
        if move is not None and policy.delays_step:
            self._written.add(move)
            # Its number is used again once it is done, maybe before a step is composed.
            self.mover.when_done[move] = partial(self._written.discard, move)

    def _prefilled(self, s: SequenceState, now: int) -> None:
        if self.sender is not None and self.sender.takes(s):
            self.sender.prompt_computed(s, now)
        else:
            self.milestones.prefilled(s, now)
            self.milestones.first_token(s, now)

    def _finish(self, s: SequenceState, now: int) -> None:
        if s.status is Status.TRANSFERRING:
            return
        self.entrance.leaving[s.request] = s
        if not self._looks_ahead:
            self._give_back(s)
        self.milestones.finished(s, now)

    def _give_back(self, s: SequenceState) -> None:
        """Release what a request that has ended still holds."""
        del self.entrance.leaving[s.request]
        self._release(s, s.lease)
        self.entrance.refused = False

    def _release(self, s: SequenceState, lease: int) -> None:
        depth = self.store.depth(lease)
        self.store.release(lease, self.engine.now_ns)
        if self.cache.discard_on_finish:
            self.store.discard(s.request, 0, depth)
        elif self.keeping is not None:
            self.keeping.finished(s, depth)

    def _compose_step(self, now: int) -> None:
        """Compose the next step; looking ahead, as it was decided when the step that has ended began.

        What that one brought is known from here on, and at once where nothing was decided.
        """
        room = self._decide(now)
        if self._looks_ahead:
            for s in list(self.entrance.leaving.values()):
                self._give_back(s)
            self.entrance.waiting.known_until_ns = None
            if not len(self.batch):
                room = self._decide(now)
        if len(self.batch):
            self.step.prepare((*room, *self._written), now)

    def _decide(self, now: int) -> list[int]:
        """Share out the budget, preempt, admit; return the moves to wait for."""
        preempted = False
        while (room := self.batch.begin(self.store, now)) is None:
            self._preempt_last(now)
            preempted = True
        self.mover.issue()
        self.entrance.join_ready(now)
        if not preempted:
            self.entrance.admit(now)
        return room

    def _preempt_last(self, now: int) -> None:
        leaving = next(reversed(self.entrance.leaving.values()), None)
        if leaving is not None:  # it has ended, but the scheduler does not know that yet
            last = next(reversed(self.running.values()), None)
            if last is None or leaving.joined > last.joined:
                if self.settings.async_scheduling == "stop-token":
                    self.batch.pop_last()
                self._give_back(leaving)
                return
        popped = self.batch.pop_last()
        assert popped is not None, "an empty batch asks for no room"
        request, computed, last_token_ns = popped
        s = self.running.pop(request)
        s.last_token_ns = last_token_ns
        self.store.release(s.lease, now)
        s.lease = -1
        self.entrance.refused = False
        self.entrance.waiting.appendleft(s)
        self.milestones.preempted(s, computed, now)

    def _start(self, begin_ns: int, stall_ns: int) -> None:
        now = self.engine.now_ns
        end = self.batch.start(self.store, begin_ns, stall_ns)
        self._stepping = True
        entrance = self.entrance
        streams = self.sender is not None and self.sender.streams
        admits = entrance.has_waiting and not entrance.refused and entrance.could_admit()
        if streams or admits or entrance.has_ready:
            end = self.batch.interrupt(self.store, now)
        if self.sender is not None and streams:
            self.sender.step_started(end)
        self._boundary = self.engine.schedule(end, BOUNDARY, self.machine, self._at_boundary)

    # -- prefetching

    def prefetch(self, request: int, tokens: int, occasion: str) -> None:
        """Bring a request's blocks up to the cpu, where the prefetch policy wants that on this occasion."""
        if self.prefetcher is not None and occasion in self.prefetcher.policy.occasions:
            now = self.engine.now_ns
            self.catch_up(now)
            limit = self.admitter.matchable_blocks(tokens)
            blocks = self.prefetcher.policy.blocks(Candidate(occasion, request, tokens, limit, now))
            if blocks:
                self.prefetcher.start(request, blocks, now)

    @property
    def prefetches_sessions(self) -> bool:
        """Whether a paused session's blocks may be brought up before its next turn."""
        return self.prefetcher is not None and "session" in self.prefetcher.policy.occasions

    def held_back(self, request: int) -> bool:
        """Return whether a waiting request still waits for its prefetched blocks."""
        return self.prefetcher is not None and self.prefetcher.holds_back(request, self.engine.now_ns)

    # -- what routers and the cluster ask

    @property
    def requests(self) -> int:
        """Requests routed here that are not finished."""
        return self.milestones.requests

    @property
    def queued_tokens(self) -> int:
        """Prompt tokens routed here that are not computed yet, and those of requests handed over to here."""
        return self.milestones.queued_tokens

    @property
    def expected_prefill_tokens(self) -> int:
        """Of the queued tokens, those that the router expected to be computed."""
        return self.milestones.expected_prefill_tokens

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether an empty GPU would have room for that many tokens."""
        blocks = -(-kv_tokens // self.cache.block_size_tokens)
        return blocks + self.kept_free_blocks <= self._gpu_blocks

    def record_all(self) -> None:
        """Keep iterations, transfers and evictions for the recorder."""
        self.milestones.records_all = True
        self.batch.log_steps()
        self.store.log_evictions()
        self.mover.when_sent(lambda transfer: self.recorder.log_transfer(transfer, self.machine))

    def flush_records(self) -> None:
        """Hand what the native side kept to the recorder."""
        for step in self.batch.take_steps():
            self.recorder.log_step(self.machine, step)
        for now_ns, tier, blocks in self.store.take_evictions():
            self.recorder.log_eviction(self.machine, TIERS[tier], now_ns, blocks)
