"""The scheduler selects the requests of each step (semantics 5; seed 000, 3.2 and 3.3).

A step is composed at a step boundary: running requests first, then loaded requests, then the queue, first
come, first served, while token budget and slots (``max_num_seqs``) last. A request whose admission is refused
waits at the head and is tried again after a release. If a running request cannot get a block, the request
that joined last is preempted: it recomputes later, from the front of the queue. If no token is left to
prefill (``skip-prefill``), its first step is a decode step (seed 000, 3.3). Released blocks stay reusable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sized
from itertools import islice

from kvcache_sim.cache.settings import CacheSettings, MovementSettings
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.spec.admission import Admitter, Parts
from kvcache_sim.spec.request import SequenceState, Status
from kvcache_sim.spec.ttft import Loading


class Scheduler:
    """Composes the steps of one machine; a model of another rule of the queue overrides its methods."""

    admitter_class = Admitter

    def __init__(
        self, parts: Parts, replica: ReplicaSettings, cache: CacheSettings, movement: MovementSettings
    ) -> None:
        self.parts = parts
        self.store, self.mover, self.batch = parts.store, parts.mover, parts.batch
        self.milestones = parts.milestones
        self.admitter = self.admitter_class(parts, cache, movement)
        self.replica, self.cache, self.movement = replica, cache, movement
        #: Number of requests at the head of the queue that may be admitted next.
        self._window = 1
        self.waiting: deque[SequenceState] = deque()
        self.running: dict[int, SequenceState] = {}
        self.loading: dict[int, Loading] = {}
        #: Requests that have their KV, or its first layer, and wait for the next step.
        self.loaded: list[Loading] = []
        #: Requests that joined the composed step while their KV still arrives.
        self.late: list[Loading] = []
        #: The head of the queue was refused; it is tried again after a release.
        self.refused = False
        #: True if requests decode here.
        self.decodes = True
        #: Hand-overs to this machine, as its target sets them: waiting for blocks, in transfer, arrived.
        self.asking: Sized = ()
        self.coming: set[int] = set()
        self.arrived: Sized = ()
        #: Reserves blocks for the first of ``asking``, False if refused; adds arrived requests to the step.
        self.take_over: Callable[[int], bool] = lambda now: False
        self.join_arrived: Callable[[], None] = lambda: None

    # -- the queue

    def enqueue(self, s: SequenceState) -> None:
        """Queue a request that has been looked up."""
        self.waiting.append(s)

    def _candidates(self, now: int) -> list[SequenceState]:
        """Return the requests that may be admitted next, in the order of the queue."""
        return list(islice(self.waiting, self._window))

    def _head(self, now: int) -> SequenceState | None:
        """Return the next request to admit; None if all have to wait."""
        return next(iter(self._candidates(now)), None)

    @property
    def queued(self) -> int:
        """Requests that wait for blocks, handed-over requests included."""
        return len(self.waiting) + len(self.asking)

    @property
    def in_transit(self) -> int:
        """Requests with reserved blocks that wait for KV or for the next step."""
        return len(self.loading) + len(self.loaded) + len(self.coming) + len(self.arrived)

    def try_again(self) -> bool:
        """Allow a refused head another try; return True if any request waits."""
        self.refused = False
        return bool(self.loaded or self.queued or self.arrived)

    # -- composing a step

    def compose(self, now: int) -> list[int]:
        """Compose the next step; return the moves that free its blocks.

        Distribute the token budget, preempt, add loaded requests, admit.
        """
        preempted = False
        while (freeing_moves := self.batch.begin(now)) is None:
            self._preempt_last(now)
            preempted = True
        self.mover.issue()
        self.join_arrived()
        self._join_all_loaded(now)
        if not preempted and not self.refused and self.queued:
            self._admit(now)
        return freeing_moves

    def _join_all_loaded(self, now: int) -> None:
        while self.loaded and self.batch.budget_left > 0:
            loading = self.loaded.pop(0)
            self.milestones.left_queue(loading.sequence, now)
            self._join_loaded(loading, now)

    def _preempt_last(self, now: int) -> None:
        """Send the request that joined last back to the queue."""
        s = self.batch.remove_last()
        del self.running[s.request]
        self.store.release(s.lease, now)
        s.lease = -1
        self.refused = False
        self.waiting.appendleft(s)
        self.milestones.preempted(s, now)

    def step_ended(self, finished: list[SequenceState], now: int) -> None:
        """Remove finished requests from the batch."""
        for s in finished:
            del self.running[s.request]
            if s.status is not Status.TRANSFERRING:
                self._leave(s, now)
                self.milestones.finished(s, now)

    def _leave(self, s: SequenceState, now: int) -> None:
        """Release the blocks of a finished request."""
        self.release(s, s.lease, now)
        self.refused = False

    def release(self, s: SequenceState, lease: int, now: int) -> None:
        """Release a finished request's blocks; shared blocks stay reusable."""
        self.store.release(lease, now)

    # -- admission

    def _admit(self, now: int) -> None:
        """Admit until the queue is empty, its head is refused, or slots or tokens are used up.

        Preempted requests come first, then handed-over requests, then new ones.
        """
        slots = self.replica.max_num_seqs - self._taken_slots
        while not self.refused and slots > 0 and self.batch.budget_left > 0:
            s = self._head(now)
            if self._asks_first(s):
                self.refused = not self.take_over(now)
            elif s is None:
                return
            else:
                self.refused = not self._admit_one(s, now)
            slots -= 1

    @property
    def _taken_slots(self) -> int:
        return len(self.running) + len(self.loading) + len(self.coming)

    def _asks_first(self, head: SequenceState | None) -> bool:
        return bool(self.asking) and not (head is not None and head.preemptions)

    def _admit_one(self, s: SequenceState, now: int) -> bool:
        """Admit the next request of the queue; False if refused."""
        parts, block = self.parts, self.cache.block_size_tokens
        admission = self.admitter.admit(s, now)
        if admission is None:
            return False
        self.waiting.remove(s)
        s.lease = admission.lease
        self.milestones.admitted(s, admission.reused_blocks, now)
        s.computed_tokens = min(admission.reused_blocks * block, s.prefill_target_tokens)
        if s.preemptions == 0:
            s.cached_tokens_by_source = [blocks * block for blocks in admission.from_source]
            parts.lookups.first_admission(s, s.computed_tokens, now)
        else:
            s.recomputed_tokens -= s.computed_tokens
        self.mover.issue()
        loading = Loading(s, admission, self.mover, self._on_loaded)
        if loading.waits():
            s.status = Status.LOADING
            self.loading[s.request] = loading
        else:
            self._join_loaded(loading, now)
        return True

    def load_rests(self, now: int) -> None:
        """Load more of the requests that wait for space to load their KV, in order of admission."""
        for loading in list(self.loading.values()):
            if (admission := loading.admission).rest_end:
                admission.freeing_moves = [m for m in admission.freeing_moves if m in self.mover.transfers]
                self.admitter.load_rest(loading.sequence.request, admission, now)
                self.mover.issue()
                loading.await_loads()

    def _on_loaded(self, loading: Loading) -> None:
        del self.loading[loading.sequence.request]
        self.loaded.append(loading)

    # -- joining the step

    def _join_loaded(self, loading: Loading, now: int) -> None:
        """Add an admitted request to the composed step; its KV may still arrive."""
        s = loading.sequence
        target = s.prefill_target_tokens
        if s.computed_tokens == target:  # a full hit: its first step is a decode step
            target = s.computed_tokens = target - 1
            s.status = Status.DECODING
            if s.first_token_ns < 0:
                s.prefill_end_time_ns = now
        else:
            s.status = Status.PREFILLING
            if s.preemptions == 0:
                self.milestones.records.log_prefill_start(s, s.machine, now, target - s.computed_tokens)
        self.into_batch(s, target, loading.admission.total_blocks)
        if loading.transfers:
            self.late.append(loading)

    def into_batch(self, s: SequenceState, prefill_target: int, blocks: int) -> None:
        """Add a request to the composed step; ``prefill_target`` in tokens, ``blocks``: held or reserved."""
        total = s.total_kv_tokens if self.decodes else s.prompt_num_tokens
        self.batch.add(s, prefill_target, total, blocks)
        self.running[s.request] = s
