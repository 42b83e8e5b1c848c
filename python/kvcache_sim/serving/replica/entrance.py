"""The way into the step: from the queue by admission, through loading, into the batch."""

from __future__ import annotations

from collections import deque

from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.cache.write.policy import WritePolicy
from kvcache_sim.serving.admission import Admission, Admitter
from kvcache_sim.serving.batch import Batch
from kvcache_sim.serving.duplicates import Duplicates
from kvcache_sim.serving.loading import Loading
from kvcache_sim.serving.queue import make_order
from kvcache_sim.serving.queue.look_ahead import LookAhead
from kvcache_sim.serving.queue.waiting_queue import WaitingQueue
from kvcache_sim.serving.replica.handing_over import HandedOver, Receives
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.replica.next_step import NextStep
from kvcache_sim.serving.sequence import SequenceState, Status
from kvcache_sim.serving.settings import ReplicaSettings


class Entrance:
    """Lets requests into the composed step while its token budget and the places last."""

    def __init__(
        self,
        settings: tuple[ReplicaSettings, CacheSettings],
        admitter: Admitter,
        batch: Batch,
        step: NextStep,
        running: dict[int, SequenceState],
        milestones: Milestones,
    ) -> None:
        replica, self.cache = settings
        self.max_num_seqs = replica.max_num_seqs
        self.admitter = admitter
        self.batch = batch
        self.step = step
        self.running = running
        self.milestones = milestones
        self.waiting = WaitingQueue(make_order(replica.queue_order), self._cached_tokens)
        self.loading: dict[int, Loading] = {}
        self.loaded: list[Loading] = []
        self._joined = 0
        #: Set where a request waits for blocks that others are computing (``duplicate_prefill: wait``).
        self.duplicates: Duplicates | None = None
        #: Set where the blocks of waiting requests are evicted last (``scheduler_aware_window``).
        self.look_ahead: LookAhead | None = None
        #: Write policy of each edge, from the gpu down.
        self.writes: list[WritePolicy] = []
        #: Requests that have ended and still hold their places and blocks (asynchronous scheduling).
        self.leaving: dict[int, SequenceState] = {}
        #: Whether requests decode here too, or go on elsewhere after their prompt.
        self.decodes = True
        #: Takes in what other machines hand over; what asks for room, is on its way, and has arrived.
        self.reception: Receives | None = None
        self.asking: deque[HandedOver] = deque()
        self.arriving: set[int] = set()
        self.arrived: deque[HandedOver] = deque()
        #: The queue's head was refused; tried again when something has been given back.
        self.refused = False

    def _cached_tokens(self, s: SequenceState) -> int:
        limit = self.admitter.matchable_blocks(s.prefill_target_tokens)
        return self.admitter.store.peek(s.request, limit)[0] * self.cache.block_size_tokens

    @property
    def has_ready(self) -> bool:
        """Whether a request has its KV and waits for the next step."""
        return bool(self.loaded or self.arrived)

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits for room."""
        return bool(self.asking or self.waiting)

    @property
    def queued(self) -> int:
        """How many requests wait for room, handed-over ones included."""
        return len(self.waiting) + len(self.asking)

    @property
    def on_their_way(self) -> int:
        """How many requests have room and wait for KV or for the next step."""
        return len(self.loading) + len(self.loaded) + len(self.arriving) + len(self.arrived)

    def could_admit(self) -> bool:
        """Return whether a boundary could let anyone in."""
        return bool(self.loaded or self.arrived) or (self._places() > 0 and self.batch.budget_left > 0)

    def _places(self) -> int:
        taken = len(self.running) + len(self.loading) + len(self.leaving) + len(self.arriving)
        return self.max_num_seqs - taken

    def admit(self, now: int) -> None:
        """Admit from the queue until it is empty, its head is refused, or places or tokens are given out.

        Preempted requests come first, then those handed over, then new ones.
        """
        if self.refused or not self.has_waiting:
            return
        places = self._places()
        while not self.refused and places > 0 and self.batch.budget_left > 0:
            s = self.waiting.head() if self.waiting else None
            if self.reception is not None and self._asks_first(s):
                self.refused = not self.reception.take(now)
            elif s is None or (self.duplicates is not None and self._waits_for_another(s, self.duplicates)):
                return
            else:
                self.refused = not self._take(s, now)
            places -= 1

    def _asks_first(self, head: SequenceState | None) -> bool:
        """Return whether a handed-over request, known to the scheduler, goes before the head of the queue."""
        if not self.asking or (head is not None and head.preemptions):
            return False
        known_until_ns = self.waiting.known_until_ns
        return known_until_ns is None or self.asking[0].asked_ns < known_until_ns

    def _take(self, s: SequenceState, now: int) -> bool:
        """Admit the next of the queue; False when that is refused."""
        if self.look_ahead is not None:
            self.look_ahead.protect(other for other in self.waiting if other is not s)
        admission = self.admitter.admit(s, now)
        if admission is None:
            return False
        self.waiting.take(s)
        self._admitted(s, admission, now)
        return True

    def _waits_for_another(self, s: SequenceState, duplicates: Duplicates) -> bool:
        """Return whether the head of the queue waits for a block that another request is computing."""
        tokens = s.prefill_target_tokens
        limit = self.admitter.matchable_blocks(tokens)
        found = self.admitter.store.peek(s.request, limit)[0]
        others = [*self.running.values(), *(loading.sequence for loading in self.loading.values())]
        others += [loading.sequence for loading in self.loaded]
        return found < limit and duplicates.computed_by_any(s, found, others)

    def _admitted(self, s: SequenceState, admission: Admission, now: int) -> None:
        s.lease = admission.lease
        for policy in self.writes:
            policy.used(self.admitter.store, s.lease, now)
        self.milestones.admitted(s, admission.reused_blocks, now)
        cached = min(admission.reused_blocks * self.cache.block_size_tokens, s.prefill_target_tokens)
        if s.preemptions == 0:
            self._first_admission(s, admission, cached, now)
        else:
            s.recomputed_tokens -= cached
        mover = self.admitter.mover
        mover.issue()
        if not admission.room and not admission.loads:
            self._join(s, admission, cached, now)
            return
        loading = Loading(s, admission, mover, self._on_loaded)
        if loading.waiting():
            s.status = Status.LOADING
            self.loading[s.request] = loading
        else:
            self._join_late(loading, now)

    def _first_admission(self, s: SequenceState, admission: Admission, cached: int, now: int) -> None:
        s.cached_prefix_length_used = cached
        s.num_tokens_requiring_prefill = s.prompt_num_tokens - cached
        block = self.cache.block_size_tokens
        s.cached_tokens_by_place = tuple([blocks * block for blocks in admission.from_place])
        told = self.milestones
        for event in told.outcomes.decide(s, cached, now):
            told.recorder.log_prefix_cache_event(s, told.machine, now, event)

    def _on_loaded(self, loading: Loading) -> None:
        del self.loading[loading.sequence.request]
        self.loaded.append(loading)

    def join_ready(self, now: int) -> None:
        """Let requests whose KV has come into the step while it has tokens for them."""
        if self.arrived and self.reception is not None:
            self.reception.join()
        while self.loaded and self.batch.budget_left > 0:
            loading = self.loaded.pop(0)
            self.milestones.left_queue(loading.sequence, now)
            self._join_late(loading, now)

    def _join_late(self, loading: Loading, now: int) -> None:
        s, admission = loading.sequence, loading.admission
        cached = min(admission.reused_blocks * self.cache.block_size_tokens, s.prefill_target_tokens)
        self._join(s, admission, cached, now)
        if loading.transfers:
            self.step.late.append(loading)

    def _join(self, s: SequenceState, admission: Admission, cached: int, now: int) -> None:
        target = s.prefill_target_tokens
        if cached == target:  # a full hit under skip-prefill: its first step is a decode step
            target = cached = target - 1
            s.status = Status.DECODING
            if s.first_token_ns < 0:
                s.prefill_end_time_ns = now
                s.prompt_tokens_fully_processed = s.prompt_num_tokens
        else:
            s.status = Status.PREFILLING
            if s.preemptions == 0:
                told = self.milestones
                told.recorder.log_prefill_start(s, told.machine, now, target - cached)
        self.into_batch(s, (cached, target, admission.total_blocks), s.last_token_ns)

    def into_batch(self, s: SequenceState, tokens: tuple[int, int, int], last_token_ns: int | None) -> None:
        """Add a request to the step: ``tokens`` computed and to compute before it decodes, and its blocks."""
        computed, target, blocks = tokens
        total = s.total_kv_tokens if self.decodes else s.prompt_num_tokens
        self.batch.add(
            s.request, s.lease, (computed, target, total, s.prompt_num_tokens, blocks), last_token_ns
        )
        self.batch.commit_last(self.admitter.store)
        self.running[s.request] = s
        s.joined = self._joined = self._joined + 1
