"""Who is in the next step: who runs already, then whose KV has come, then the queue (semantics 5)."""

from __future__ import annotations

from collections import deque
from typing import Literal

from kvcache_sim.cache.admission.policy import Finished
from kvcache_sim.cache.machine import Machine
from kvcache_sim.serving.admission import Admission, Admitter
from kvcache_sim.serving.batch_contract import Batch
from kvcache_sim.serving.duplicates import Duplicates
from kvcache_sim.serving.loading import Loading
from kvcache_sim.serving.queue import make_order
from kvcache_sim.serving.queue.look_ahead import LookAhead
from kvcache_sim.serving.queue.waiting_queue import WaitingQueue
from kvcache_sim.serving.replica.handing_over import HandedOver, Receives
from kvcache_sim.serving.replica.milestones import Milestones
from kvcache_sim.serving.sequence import SequenceState, Status
from kvcache_sim.serving.settings import ReplicaSettings


class Scheduler:
    """Composes one machine's steps: shares out the budget, preempts, admits while budget and places last.

    A request waits, is admitted, loads where its KV is not on the GPU, and joins the step; a running one that
    is refused room sends the last that joined back to the queue.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        machine: Machine,
        admitter: Admitter,
        batch: Batch,
        milestones: Milestones,
    ) -> None:
        self.cache = machine.cache
        self.store = machine.store
        self._tree = machine.tree
        self.mover = machine.mover
        self.admitter = admitter
        self.batch = batch
        self.milestones = milestones
        self._writes = machine.writes
        self._pool = machine.pool
        self._admission = machine.admission
        self._max_num_seqs = settings.max_num_seqs
        #: Whether a step is decided on while the one before it runs, and an answer's end is known late.
        self._looks_ahead = settings.async_scheduling != "none"
        self._late_ends = settings.async_scheduling == "stop-token"
        prefetcher = machine.prefetcher
        waits = prefetcher is not None and "queued" in prefetcher.policy.occasions
        held_back = prefetcher.holds_back if prefetcher is not None and waits else None
        order = make_order(settings.queue_order)
        self.waiting = WaitingQueue(order, self._cached_tokens, held_back, self.mover.engine)
        self.running: dict[int, SequenceState] = {}
        self.loading: dict[int, Loading] = {}
        #: Requests that have their KV, or its first layer, and wait for the next step.
        self.loaded: list[Loading] = []
        #: Requests that joined the step while their KV still arrives.
        self.late: list[Loading] = []
        #: Requests that have ended and still hold their places and blocks (asynchronous scheduling).
        self.leaving: dict[int, SequenceState] = {}
        self._joined = 0
        window = self.cache.scheduler_aware_window
        self._look_ahead: LookAhead | None = None
        if window and machine.tree is not None:
            self._look_ahead = LookAhead(machine.tree, window, self.cache.matchable_blocks)
        self._duplicates: Duplicates | None = None
        if settings.duplicate_prefill == "wait":
            self._duplicates = Duplicates(admitter.outcomes.trace, self.cache.block_size_tokens)
        #: Whether requests decode here too, or go on elsewhere after their prompt.
        self._decodes = True
        #: Takes in what other machines hand over; what asks for room, is on its way, and has arrived.
        self.reception: Receives | None = None
        self.asking: deque[HandedOver] = deque()
        self.arriving: set[int] = set()
        self.arrived: deque[HandedOver] = deque()
        #: Requests here whose clients have given them up.
        self.given_up: dict[int, SequenceState] = {}
        #: The queue's head was refused; tried again when something has been given back.
        self.refused = False

    # -- what it is told

    def receive_by(self, reception: Receives) -> None:
        """Take in what other machines hand over to this one."""
        self.reception = reception

    def decode_elsewhere(self) -> None:
        """Let every request end here with its prompt."""
        self._decodes = False

    def enqueue(self, s: SequenceState) -> None:
        """Queue a request that has been looked up."""
        self.waiting.append(s)

    def protect_waiting(self) -> None:
        """Keep the blocks of the queue's first requests from eviction, where the cache looks ahead."""
        if self._look_ahead is not None:
            self._look_ahead.protect(self.waiting)

    @property
    def looks_at_queue(self) -> bool:
        """Whether the blocks of waiting requests are evicted last (``scheduler_aware_window``)."""
        return self._look_ahead is not None

    def try_again(self) -> bool:
        """Try a refused head once more: something has been given back. Return whether anyone waits."""
        self.refused = False
        return bool(self.loaded or self.waiting or self.arrived or self.asking)

    def give_up(self, s: SequenceState, now: int) -> bool:
        """Let a request go that its client has given up; False where that waits for the next boundary."""
        if s in self.waiting:
            self.waiting.remove(s)
            self.refused = False
            self.milestones.aborted(s, now)
            return True
        self.given_up[s.request] = s
        return False

    def let_go(self, now: int) -> None:
        """Take requests that were given up out of the batch, and free their blocks."""
        for request, s in list(self.given_up.items()):
            if s.status in (Status.FINISHED, Status.ABORTED, Status.TRANSFERRING):
                del self.given_up[request]
            elif request in self.running:
                del self.given_up[request]
                self._drop(s, now)
            elif s in self.waiting:  # it was preempted meanwhile
                del self.given_up[request]
                self.give_up(s, now)

    def _drop(self, s: SequenceState, now: int) -> None:
        self.batch.take_out(s.request)
        del self.running[s.request]
        self.release(s, s.lease, now)
        self.refused = False
        self.milestones.aborted(s, now)

    def step_ended(self, finished: list[int], now: int) -> None:
        """Take requests that have generated their last token out of the step."""
        for request in finished:
            s = self.running.pop(request)
            if s.status is not Status.TRANSFERRING:
                self.leaving[request] = s
                if not self._looks_ahead:
                    self._give_back(s, now)
                self.milestones.finished(s, now)
        if self._looks_ahead:
            self.waiting.know_until(self.batch.begin_ns)

    # -- what it is asked

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

    def wants_boundary(self) -> bool:
        """Return whether the step that starts now is to be the only one until the next boundary."""
        if self.loaded or self.arrived or any(request in self.running for request in self.given_up):
            return True
        return bool(self.waiting or self.asking) and not self.refused and self.could_admit()

    def _places(self) -> int:
        taken = len(self.running) + len(self.loading) + len(self.leaving) + len(self.arriving)
        return self._max_num_seqs - taken

    def _cached_tokens(self, s: SequenceState) -> int:
        limit = self.cache.matchable_blocks(s.prefill_target_tokens)
        return self.store.peek(s.request, limit)[0] * self.cache.block_size_tokens

    # -- composing a step

    def compose(self, now: int) -> list[int]:
        """Compose the next step; return the moves that free its room.

        Looking ahead, it is composed as it was decided when the step that has ended began: what that one
        brought is known from here on, and at once where nothing was decided.
        """
        room = self._decide(now)
        if self._looks_ahead:
            for s in list(self.leaving.values()):
                self._give_back(s, now)
            self.waiting.know_until(None)
            if not len(self.batch):
                room = self._decide(now)
        return room

    def _decide(self, now: int) -> list[int]:
        """Share out the budget, preempt, let loaded requests join, admit."""
        preempted = False
        while (room := self.batch.begin(self.store, now)) is None:
            self._preempt_last(now)
            preempted = True
        self.mover.issue()
        if self.arrived and self.reception is not None:
            self.reception.join()
        self._abandon_loaded(now)
        while (loading := self._next_loaded()) is not None:
            self.loaded.remove(loading)
            self.milestones.left_queue(loading.sequence, now)
            self._join_late(loading, now)
        if not preempted and not self.refused and (self.waiting or self.asking):
            self._admit(now)
        return room

    def _next_loaded(self) -> Loading | None:
        """Return whose KV, or its first layer, has come first of those that may join; None without tokens."""
        if self.batch.budget_left <= 0:
            return None
        return next((loading for loading in self.loaded if not loading.sequence.given_up), None)

    def _abandon_loaded(self, now: int) -> None:
        """Free what was loaded for requests that were given up meanwhile, once all of it has come."""
        gone = [loading for loading in self.loaded if loading.sequence.given_up]
        for loading in gone:
            if loading.still_comes():
                continue
            s = loading.sequence
            self.loaded.remove(loading)
            self.given_up.pop(s.request, None)
            self.release(s, s.lease, now)
            self.refused = False
            self.milestones.aborted(s, now)

    def _preempt_last(self, now: int) -> None:
        """Send the last request that joined back to the queue."""
        leaving = next(reversed(self.leaving.values()), None)
        if leaving is not None:  # it has ended, but the scheduler does not know that yet
            last = next(reversed(self.running.values()), None)
            if last is None or leaving.joined > last.joined:
                if self._late_ends:
                    self.batch.pop_last()
                self._give_back(leaving, now)
                return
        popped = self.batch.pop_last()
        assert popped is not None, "an empty batch asks for no room"
        request, computed, last_token_ns = popped
        s = self.running.pop(request)
        s.last_token_ns = last_token_ns
        self.store.release(s.lease, now)
        s.lease = -1
        self.refused = False
        self.waiting.appendleft(s)
        self.milestones.preempted(s, computed, now)

    def _give_back(self, s: SequenceState, now: int) -> None:
        """Release what a request that has ended still holds."""
        del self.leaving[s.request]
        self.release(s, s.lease, now)
        self.refused = False

    def release(self, s: SequenceState, lease: int, now: int) -> None:
        """Give up a request's blocks; those that the cache does not admit are discarded."""
        depth = self.store.depth(lease)
        self.store.release(lease, now)
        if self._tree is None:
            return
        if self.cache.discard_on_finish:
            self._tree.discard(s.request, 0, depth)
        elif self._admission is not None:
            finished = Finished(
                request=s.request,
                turn=s.turn,
                in_session=s.session >= 0,
                prompt_tokens=s.prompt_num_tokens,
                output_tokens=s.output_tokens,
                cached_tokens=s.cached_prefix_length_used,
                block_size_tokens=self.cache.block_size_tokens,
                blocks=depth,
            )
            self._tree.discard(s.request, self._admission.kept_blocks(finished), depth)

    # -- admission

    def _admit(self, now: int) -> None:
        """Admit from the queue until it is empty, its head is refused, or places or tokens are given out.

        Preempted requests come first, then those handed over, then new ones.
        """
        places = self._places()
        while not self.refused and places > 0 and self.batch.budget_left > 0:
            s = self.waiting.head() if self.waiting else None
            if self.reception is not None and self._asks_first(s):
                self.refused = not self.reception.take(now)
            elif s is None or (self._duplicates is not None and self._waits_for_another(s, self._duplicates)):
                return
            else:
                admitted = self._admit_one(s, now)
                if admitted == "later":
                    return
                self.refused = not admitted
            places -= 1

    def _asks_first(self, head: SequenceState | None) -> bool:
        """Return whether a handed-over request, known to the scheduler, goes before the head of the queue."""
        if not self.asking or (head is not None and head.preemptions):
            return False
        return self.waiting.knows(self.asking[0].asked_ns + 1)

    def _waits_for_another(self, s: SequenceState, duplicates: Duplicates) -> bool:
        """Return whether the head of the queue waits for a block that another request is computing."""
        limit = self.cache.matchable_blocks(s.prefill_target_tokens)
        found = self.store.peek(s.request, limit)[0]
        others = [*self.running.values(), *(loading.sequence for loading in self.loading.values())]
        others += [loading.sequence for loading in self.loaded]
        return found < limit and duplicates.computed_by_any(s, found, others)

    def _admit_one(self, s: SequenceState, now: int) -> bool | Literal["later"]:
        """Admit the next of the queue; False when that is refused, "later" where this step is too full."""
        if self._look_ahead is not None:
            self._look_ahead.protect(other for other in self.waiting if other is not s)
        admission = self.admitter.admit(s, self.batch.budget_left, now)
        if admission is None:
            return False
        if admission == "later":
            return "later"
        self.waiting.take(s)
        s.lease = admission.lease
        if self._writes is not None:
            self._writes.used(s.lease, now)
        self.milestones.admitted(s, admission.reused_blocks, now)
        cached = min(admission.reused_blocks * self.cache.block_size_tokens, s.prefill_target_tokens)
        if s.preemptions == 0:
            self.milestones.first_admitted(s, admission.from_place, self.cache.block_size_tokens, cached, now)
            if self._pool is not None:
                self._pool.was_hit(admission.pool_blocks)
        else:
            s.recomputed_tokens -= cached
        self.mover.issue()
        if not admission.room and not admission.loads:
            self._join(s, admission, cached, now)
            return True
        loading = Loading(s, admission, self.mover, self._on_loaded)
        if loading.waiting():
            s.status = Status.LOADING
            self.loading[s.request] = loading
        else:
            self._join_late(loading, now)
        return True

    def _on_loaded(self, loading: Loading) -> None:
        del self.loading[loading.sequence.request]
        self.loaded.append(loading)

    # -- joining the step

    def _join_late(self, loading: Loading, now: int) -> None:
        s, admission = loading.sequence, loading.admission
        cached = min(admission.reused_blocks * self.cache.block_size_tokens, s.prefill_target_tokens)
        self._join(s, admission, cached, now)
        if loading.transfers:
            self.late.append(loading)

    def _join(self, s: SequenceState, admission: Admission, cached: int, now: int) -> None:
        target = s.prefill_target_tokens
        if cached == target:  # a full hit under skip-prefill: its first step is a decode step
            target = cached = target - 1
            s.status = Status.DECODING
            if s.first_token_ns < 0:
                s.prefill_end_time_ns = now
                s.processed_tokens = s.prompt_num_tokens
        else:
            s.status = Status.PREFILLING
            if s.preemptions == 0:
                self.milestones.prefill_starts(s, target - cached, now)
        self.into_batch(s, cached, target, admission.total_blocks, s.last_token_ns)

    def into_batch(
        self, s: SequenceState, computed: int, target: int, blocks: int, last_token_ns: int | None
    ) -> None:
        """Add a request to the step: tokens computed and to compute before it decodes, and its blocks."""
        total = s.total_kv_tokens if self._decodes else s.prompt_num_tokens
        tokens = (computed, target, total, s.prompt_num_tokens, blocks)
        self.batch.add(s.request, s.lease, tokens, last_token_ns)
        self.batch.commit_last(self.store)
        self.running[s.request] = s
        if s.given_up:
            self.given_up[s.request] = s
        s.joined = self._joined = self._joined + 1
