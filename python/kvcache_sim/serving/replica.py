"""A replica: one engine instance on a machine, continuous batching as vLLM v1 schedules it (semantics 5).

At a step boundary: end the step, let loaded requests join, give running sequences their tokens and blocks
(preempting the last when refused), admit from the queue while budget and places last, start the next step.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.settings import TIERS, CacheSettings
from kvcache_sim.cache.store import ADMIT, FINISH, FIRST_TOKEN, PREEMPT, BlockStore
from kvcache_sim.cache.transfer import Transfer
from kvcache_sim.cache.write.policy import WritePolicy
from kvcache_sim.engine import ARRIVAL, BOUNDARY, Engine, Event
from kvcache_sim.serving.admission import Admission, Admitter
from kvcache_sim.serving.batch import Batch
from kvcache_sim.serving.duplicates import Duplicates
from kvcache_sim.serving.loading import Loading
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.prefetcher import Prefetcher
from kvcache_sim.serving.queue import make_order
from kvcache_sim.serving.queue.waiting_queue import WaitingQueue
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.sequence import SequenceState, Status
from kvcache_sim.serving.settings import ReplicaSettings


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
        self.engine = engine
        self.recorder = recorder
        self.outcomes = outcomes
        self.waiting = WaitingQueue(make_order(self.settings.queue_order), self._cached_tokens)
        self.prefetcher: Prefetcher | None = None
        self.loading: dict[int, Loading] = {}
        self.loaded: list[Loading] = []
        self.running: dict[int, SequenceState] = {}
        #: Prompt tokens routed here whose first token is not out yet.
        self.queued_tokens = 0
        #: Requests routed here that are not finished.
        self.requests = 0
        #: Of the queued tokens, those that the router expected to be computed.
        self.expected_prefill_tokens = 0
        #: Told when a request leaves this machine.
        self.on_close: Callable[[SequenceState], None] = lambda sequence: None
        #: Told when a request's first token is out.
        self.on_first_token: Callable[[SequenceState], None] = lambda sequence: None
        self.records_all = False
        #: Called at the end of every boundary (``--check full``).
        self.check: Callable[[], None] | None = None
        #: Set where a request waits for blocks that others are computing (``duplicate_prefill: wait``).
        self.duplicates: Duplicates | None = None
        #: How many tiers the machine has.
        self.tiers = 1
        #: Write policy of each edge, from the gpu down.
        self.writes: list[WritePolicy] = []
        #: Copies that the next step waits for (``through-sync``).
        self._written: set[int] = set()
        self._boundary: Event | None = None
        self._stepping = False
        #: Moves whose room the composed step waits for.
        self._room: set[int] = set()
        self._composed_ns = 0
        #: Transfers whose final times the composed step waits for, to know its end.
        self._unsettled: set[Transfer] = set()
        #: Requests that joined the composed step while their KV still arrives.
        self._late: list[Loading] = []
        #: The queue's head was refused; tried again when something has been given back.
        self._refused = False
        self.mover.on_change = self.catch_up
        self.mover.after_change = self._after_move

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether an empty GPU would have room for that many tokens."""
        blocks = -(-kv_tokens // self.cache.block_size_tokens)
        return blocks <= sum(self.store.room(0)[:4])

    def record_all(self) -> None:
        """Keep iterations, transfers and evictions for the recorder."""
        self.records_all = True
        self.batch.log_steps()
        self.store.log_evictions()
        self.mover.record = lambda transfer: self.recorder.log_transfer(transfer, self.machine)

    def _milestone(self, kind: str, s: SequenceState, now: int) -> None:
        if self.records_all:
            self.recorder.log_milestone(kind, s, self.machine, now)

    def flush_records(self) -> None:
        """Hand what the native side kept to the recorder."""
        for step in self.batch.take_steps():
            self.recorder.log_step(self.machine, step)
        for now_ns, tier, blocks in self.store.take_evictions():
            self.recorder.log_eviction(self.machine, TIERS[tier], now_ns, blocks)

    # -- arrivals

    def arrive(self, sequence: SequenceState) -> None:
        """Take a request over; it queues once it has been looked up."""
        now = self.engine.now_ns
        sequence.since_ns = now
        self.requests += 1
        self.queued_tokens += sequence.prompt_num_tokens
        self.expected_prefill_tokens += sequence.expected_prefill_tokens
        if self.cache.lookup_ns and self.cache.enabled:
            self.engine.schedule(now + self.cache.lookup_ns, ARRIVAL, self.machine, self._enqueue, sequence)
        else:
            self._enqueue(sequence)

    def _enqueue(self, sequence: SequenceState) -> None:
        now = self.engine.now_ns
        sequence.lookup_ns += now - sequence.since_ns
        sequence.since_ns = now
        self.prefetch(sequence.request, sequence.prompt_num_tokens, "queued")
        self.waiting.append(sequence)
        if not self._refused:
            self._wake()

    def prefetch(self, request: int, tokens: int, occasion: str) -> None:
        """Bring a request's blocks up to the cpu, where prefetching is for this occasion."""
        if self.prefetcher is not None and self.prefetcher.settings.prefetch == occasion:
            self.catch_up(self.engine.now_ns)
            self.prefetcher.start(request, self.admitter.matchable_blocks(tokens), self.engine.now_ns)

    @property
    def prefetches_sessions(self) -> bool:
        """Whether a paused session's blocks are brought up before its next turn."""
        return self.prefetcher is not None and self.prefetcher.settings.prefetch == "session"

    def held_back(self, request: int) -> bool:
        """Return whether a waiting request still waits for its prefetched blocks."""
        return self.prefetcher is not None and self.prefetcher.holds_back(request, self.engine.now_ns)

    def _cached_tokens(self, s: SequenceState) -> int:
        limit = self.admitter.matchable_blocks(s.prefill_target_tokens)
        return self.store.peek(s.request, limit)[0] * self.cache.block_size_tokens

    def _wake(self) -> None:
        """Make sure that a boundary comes as soon as the scheduler could do something new."""
        now = self.engine.now_ns
        if not self._stepping:
            if self._boundary is None and not self._room and not self._unsettled:
                self._boundary = self.engine.schedule(now, BOUNDARY, self.machine, self._at_boundary)
        elif self._could_admit():
            end = self.batch.interrupt(self.store, now)
            assert self._boundary is not None
            if end < self._boundary[0]:
                self.engine.cancel(self._boundary)
                self._boundary = self.engine.schedule(end, BOUNDARY, self.machine, self._at_boundary)

    def _could_admit(self) -> bool:
        if self.loaded:
            return True
        return (
            len(self.running) + len(self.loading) < self.settings.max_num_seqs and self.batch.budget_left > 0
        )

    def catch_up(self, now_ns: int) -> None:
        """Run the iterations that began before now, so that the store is as it is now."""
        if self._stepping:
            self.batch.advance(self.store, now_ns)

    def _after_move(self) -> None:
        """Go on after KV has arrived: room may be free, a refused head may fit."""
        self.mover.issue()
        self._refused = False
        if self.loaded or self.waiting:
            self._wake()

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
        if self.writes and self.writes[0].at_commit:
            self.batch.advance(self.store, now)
            compute = self.batch.step_ns()
        first, finished, committed = self.batch.end(self.store)
        if committed:
            policy = self.writes[0]
            for request, start, end in committed:
                move = policy.committed(self.store, self.running[request].lease, (start, end), now)
                if move is not None and policy.delays_step:
                    self._written.add(move)
            per_layer = compute // self.cache.num_layers
            self.mover.issue((now - compute + per_layer, now))
        for request in first:
            self._first_token(self.running[request], now)
        for request in finished:
            self._finish(self.running.pop(request), now)

    def _first_token(self, s: SequenceState, now: int) -> None:
        if s.status is Status.PREFILLING:
            s.prefill_ns += now - s.since_ns
            s.prefill_end_time_ns = now
            s.prompt_tokens_fully_processed = s.prompt_num_tokens
            s.status = Status.DECODING
        else:
            s.first_decode_ns += now - s.since_ns
        s.first_token_ns = now
        self.queued_tokens -= s.prompt_num_tokens
        self.expected_prefill_tokens -= s.expected_prefill_tokens
        self.store.note(FIRST_TOKEN, now, s.request, 0)
        self._milestone("first_token", s, now)
        self.on_first_token(s)

    def _finish(self, s: SequenceState, now: int) -> None:
        s.generated_tokens = s.output_tokens
        s.finish_ns = now
        s.status = Status.FINISHED
        depth = self.store.depth(s.lease)
        self.store.release(s.lease)
        if self.cache.discard_on_finish:
            self.store.discard(s.request, depth)
        self._refused = False
        self.store.note(FINISH, now, s.request, s.output_tokens)
        self._milestone("finish", s, now)
        self.requests -= 1
        self.outcomes.turn_completed(s, now)
        self.recorder.close(s, self.machine)
        self.on_close(s)

    def _compose_step(self, now: int) -> None:
        preempted = False
        while (room := self.batch.begin(self.store, now)) is None:
            self._preempt_last(now)
            preempted = True
        self.mover.issue()
        self._join_loaded(now)
        if not preempted:
            self._admit(now)
        written, self._written = self._written, set()  # numbers of finished moves are used again
        if not len(self.batch):
            return
        self._composed_ns = now
        self._room = {m for m in (*room, *written) if m in self.mover.transfers}
        if self._room:
            for move in self._room:
                self.mover.transfers[move].watchers.append(self._room_came)
        else:
            self._settle(now)

    def _room_came(self, transfer: Transfer, complete: bool) -> None:
        if not complete or transfer.move not in self._room:
            return
        self._room.discard(transfer.move)
        if self._room:
            return
        now = self.engine.now_ns
        waited = now - self._composed_ns
        for s in self.running.values():
            if s.first_token_ns < 0:
                s.fetch_room_ns += waited
                s.since_ns += waited
        self._settle(now)

    def _settle(self, begin_ns: int) -> None:
        """Start the step; its end is known once all late KV has final times, none of which is past it."""
        self._composed_ns = begin_ns
        self._unsettled = {transfer for late in self._late for transfer in late.unsettled()}
        for transfer in self._unsettled:
            transfer.watchers.append(self._settled)
        if not self._unsettled:
            self._start(begin_ns)

    def _settled(self, transfer: Transfer, complete: bool) -> None:
        if complete:
            self._unsettled.discard(transfer)
            if not self._unsettled:
                self._start(self._composed_ns)

    def _start(self, begin_ns: int) -> None:
        now = self.engine.now_ns
        stall = self._stall(begin_ns) if self._late else 0
        end = self.batch.start(self.store, begin_ns, stall)
        self._stepping = True
        if self.loaded or (self.waiting and not self._refused and self._could_admit()):
            end = self.batch.interrupt(self.store, now)
        self._boundary = self.engine.schedule(end, BOUNDARY, self.machine, self._at_boundary)

    def _stall(self, now: int) -> int:
        """Return how much longer the step takes for KV that is still arriving, and charge it."""
        compute = self.batch.step_ns()
        ends = {
            late.sequence.request: late.late_until(now, compute, self.cache.num_layers) for late in self._late
        }
        stall = max(ends.values()) - (now + compute)
        for late in self._late:
            late.charge_stall(ends[late.sequence.request] - (now + compute))
        for s in self.running.values():
            if s.first_token_ns < 0:
                s.batch_stall_ns += stall - (ends.get(s.request, now + compute) - (now + compute))
        self._late = []
        return stall

    # -- preemption

    def _preempt_last(self, now: int) -> None:
        popped = self.batch.pop_last()
        assert popped is not None, "an empty batch asks for no room"
        request, computed, s_last_token_ns = popped
        s = self.running.pop(request)
        s.last_token_ns = s_last_token_ns
        if s.first_token_ns >= 0:
            # The last generated token never had KV, so tokens out = KV − prompt + 1 once decoding.
            s.generated_tokens = max(s.generated_tokens, computed - s.prompt_num_tokens + 1)
        else:
            s.prefill_ns += now - s.since_ns
            s.since_ns = now
        s.recomputed_tokens += computed
        s.preemptions += 1
        s.status = Status.WAITING
        self.store.release(s.lease)
        s.lease = -1
        self._refused = False
        self.waiting.appendleft(s)
        self.store.note(PREEMPT, now, request, computed)
        self._milestone("preempt", s, now)

    # -- admission

    def _admit(self, now: int) -> None:
        places = self.settings.max_num_seqs - len(self.running) - len(self.loading)
        while self.waiting and not self._refused and places > 0 and self.batch.budget_left > 0:
            s = self.waiting.head()
            if s is None:
                return
            if self.duplicates is not None and self._waits_for_another(s, self.duplicates):
                return
            admission = self.admitter.admit(s, now)
            if admission is None:
                self._refused = True
                return
            self.waiting.take(s)
            places -= 1
            self._admitted(s, admission, now)

    def _waits_for_another(self, s: SequenceState, duplicates: Duplicates) -> bool:
        """Return whether the head of the queue waits for a block that another request is computing."""
        tokens = s.prefill_target_tokens
        limit = self.admitter.matchable_blocks(tokens)
        found = self.store.peek(s.request, limit)[0]
        others = [*self.running.values(), *(loading.sequence for loading in self.loading.values())]
        others += [loading.sequence for loading in self.loaded]
        return found < limit and duplicates.computed_by_any(s, found, others)

    def _admitted(self, s: SequenceState, admission: Admission, now: int) -> None:
        s.lease = admission.lease
        if s.first_token_ns < 0:
            s.queue_ns += now - s.since_ns
            s.since_ns = now
        for policy in self.writes:
            policy.used(self.store, s.lease, now)
        self.store.note(ADMIT, now, s.request, admission.reused_blocks)
        self._milestone("admit", s, now)
        target = s.prefill_target_tokens
        cached = min(admission.reused_blocks * self.cache.block_size_tokens, target)
        if s.preemptions == 0:
            self._first_admission(s, admission, cached, now)
        else:
            s.recomputed_tokens -= cached
        self.mover.issue()
        if not admission.room and not admission.loads:
            self._join(s, admission, now)
            return
        loading = Loading(s, admission, self.mover, self._on_loaded)
        if loading.waiting():
            s.status = Status.LOADING
            self.loading[s.request] = loading
        else:
            self._join_late(loading, now)

    def _first_admission(self, s: SequenceState, admission: Admission, cached: int, now: int) -> None:
        s.cached_prefix_length_used = cached
        s.num_tokens_requiring_prefill = s.prompt_num_tokens - cached
        block = self.cache.block_size_tokens
        s.cached_gpu_tokens, s.cached_cpu_tokens, s.cached_disk_tokens, s.cached_remote_tokens = (
            n * block for n in admission.from_tier
        )
        for event in self.outcomes.decide(s, cached, now):
            self.recorder.log_prefix_cache_event(s, self.machine, now, event)

    def _on_loaded(self, loading: Loading) -> None:
        del self.loading[loading.sequence.request]
        self.loaded.append(loading)

    def _join_loaded(self, now: int) -> None:
        """Let loaded requests into the step while it has tokens for them."""
        while self.loaded and self.batch.budget_left > 0:
            loading = self.loaded.pop(0)
            s = loading.sequence
            if s.first_token_ns < 0:
                s.queue_ns += now - s.since_ns
                s.since_ns = now
            self._join_late(loading, now)

    def _join_late(self, loading: Loading, now: int) -> None:
        self._join(loading.sequence, loading.admission, now)
        if loading.transfers:
            self._late.append(loading)

    def _join(self, s: SequenceState, admission: Admission, now: int) -> None:
        target = s.prefill_target_tokens
        cached = min(admission.reused_blocks * self.cache.block_size_tokens, target)
        if cached == target:  # a full hit under skip-prefill: its first step is a decode step
            target = cached = target - 1
            s.status = Status.DECODING
            if s.first_token_ns < 0:
                s.prefill_end_time_ns = now
                s.prompt_tokens_fully_processed = s.prompt_num_tokens
        else:
            s.status = Status.PREFILLING
            if s.preemptions == 0:
                self.recorder.log_prefill_start(s, self.machine, now, target - cached)
        tokens = (cached, target, s.total_kv_tokens, s.prompt_num_tokens, admission.total_blocks)
        self.batch.add(s.request, s.lease, tokens, s.last_token_ns)
        self.batch.commit_last(self.store)
        self.running[s.request] = s
