"""What the milestones of a request change: its times, the machine's load, the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.cache.digest import ADMIT, FINISH, FIRST_TOKEN, HANDOVER, PREEMPT
from kvcache_sim.cache.store import GpuStore
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.sequence import SequenceState, Status

Told = Callable[[SequenceState], None]


class Milestones:
    """Keeps the time of one machine's requests and counts what was sent there."""

    def __init__(
        self, machine: int, store: GpuStore, recorder: Recorder, outcomes: Outcomes, records_all: bool
    ) -> None:
        self.machine = machine
        self.store = store
        self.recorder = recorder
        self.outcomes = outcomes
        #: Prompt tokens routed here that are not computed yet, and those of requests handed over to here.
        self.queued_tokens = 0
        #: Requests routed here that are not finished.
        self.requests = 0
        #: Of the queued tokens, those that the router expected to be computed.
        self.expected_prefill_tokens = 0
        #: Whether every milestone is recorded, beside each request's row.
        self.records_all = records_all
        self._closed: list[Told] = []
        self._prefilled: list[Told] = []
        #: Told the numbers of requests whose next token has come.
        self.tell_tokens: Callable[[Sequence[int]], None] | None = None

    def when_closed(self, tell: Told) -> None:
        """Tell of each request that leaves this machine from now on."""
        self._closed.append(tell)

    def when_prefilled(self, tell: Told) -> None:
        """Tell of each request whose prompt is computed from now on."""
        self._prefilled.append(tell)

    def when_tokens(self, tell: Callable[[Sequence[int]], None]) -> None:
        """Tell the requests of tokens that come out here from now on, those of one step together."""
        self.tell_tokens = tell

    def arrived(self, s: SequenceState, now: int) -> None:
        """Count a request that was sent here."""
        s.machine = self.machine
        s.since_ns = now
        self.requests += 1
        self.queued_tokens += s.prompt_num_tokens
        self.expected_prefill_tokens += s.expected_prefill_tokens

    def received(self, s: SequenceState, now: int) -> None:
        """End a request's way from the client to the scheduler."""
        s.client_ns += now - s.since_ns
        s.since_ns = now

    def looked_up(self, s: SequenceState, now: int) -> None:
        """End a request's look-up; it queues from now on."""
        s.lookup_ns += now - s.since_ns
        s.since_ns = now

    def admitted(self, s: SequenceState, reused_blocks: int, now: int) -> None:
        """End a request's wait in the queue."""
        self.left_queue(s, now)
        self.store.note(ADMIT, now, s.request, reused_blocks)
        if self.records_all:
            self.recorder.log_milestone("admit", s, self.machine, now)

    def first_admitted(
        self, s: SequenceState, from_place: Sequence[int], block_tokens: int, cached: int, now: int
    ) -> None:
        """Note the blocks that a request reuses, by the place they came from, and its look-up's outcome."""
        s.cached_prefix_length_used = cached
        s.num_tokens_requiring_prefill = s.prompt_num_tokens - cached
        s.cached_tokens_by_place = tuple([blocks * block_tokens for blocks in from_place])
        for event in self.outcomes.decide(s, cached, now):
            self.recorder.log_prefix_cache_event(s, self.machine, now, event)

    def prefill_starts(self, s: SequenceState, tokens: int, now: int) -> None:
        """Record that the prefill of that many missed tokens starts."""
        self.recorder.log_prefill_start(s, self.machine, now, tokens)

    def left_queue(self, s: SequenceState, now: int) -> None:
        """Charge the time since the last milestone to the queue, unless the request's TTFT is over."""
        if s.first_token_ns < 0:
            s.queue_ns += now - s.since_ns
            s.since_ns = now

    def prefilled(self, s: SequenceState, now: int) -> None:
        """End a request's prefill, or the first decode step of one without."""
        if s.status is Status.PREFILLING:
            s.prefill_ns += now - s.since_ns
            s.prefill_end_time_ns = now
            s.processed_tokens = s.prompt_num_tokens
            s.status = Status.DECODING
        else:
            s.first_decode_ns += now - s.since_ns
        s.since_ns = now
        self.queued_tokens -= s.prompt_num_tokens
        self.expected_prefill_tokens -= s.expected_prefill_tokens
        for tell in self._prefilled:
            tell(s)

    def first_token(self, s: SequenceState, now: int) -> None:
        """Show a request's first token."""
        s.first_token_ns = now
        if self.tell_tokens is not None:
            self.tell_tokens((s.request,))
        self.store.note(FIRST_TOKEN, now, s.request, 0)
        if self.records_all:
            self.recorder.log_milestone("first_token", s, self.machine, now)

    def left(self) -> None:
        """Take a request off the count that goes on elsewhere."""
        self.requests -= 1

    def taken_over(self, s: SequenceState, expected_tokens: int) -> None:
        """Count a request that another machine hands over; its KV weighs on this one until it is done."""
        s.decode_machine = self.machine
        self.expected_prefill_tokens += expected_tokens
        self.requests += 1
        self.queued_tokens += s.prompt_num_tokens

    def handed_over(self, s: SequenceState, now: int, expected_tokens: int, delays_token: bool) -> None:
        """End a request's hand-over: its KV is here."""
        waited = now - s.since_ns
        self.expected_prefill_tokens -= expected_tokens
        self.store.note(HANDOVER, now, s.request, s.handover_blocks)
        if delays_token:
            s.handover_ns = waited
            self.first_token(s, now)
        else:
            s.handover_gap_ns = waited
        s.status = Status.DECODING

    def preempted(self, s: SequenceState, computed: int, now: int) -> None:
        """Send a running request with KV of ``computed`` tokens back to the queue."""
        if s.first_token_ns >= 0:
            # The last generated token never had KV, so tokens out = KV − prompt + 1 once decoding.
            s.generated_tokens = max(s.generated_tokens, computed - s.prompt_num_tokens + 1)
        else:
            s.prefill_ns += now - s.since_ns
            s.since_ns = now
        s.recomputed_tokens += computed
        s.preemptions += 1
        s.status = Status.WAITING
        self.store.note(PREEMPT, now, s.request, computed)
        if self.records_all:
            self.recorder.log_milestone("preempt", s, self.machine, now)

    def finished(self, s: SequenceState, now: int) -> None:
        """End a request whose last token is out."""
        s.generated_tokens = s.output_tokens
        s.finish_ns = now
        s.status = Status.FINISHED
        self.store.note(FINISH, now, s.request, s.output_tokens)
        if self.records_all:
            self.recorder.log_milestone("finish", s, self.machine, now)
        self.requests -= 1
        if s.decode_machine == self.machine:
            self.queued_tokens -= s.prompt_num_tokens
        self.outcomes.turn_completed(s, s.output_tokens, now)
        self.recorder.close(s, s.machine)
        for tell in self._closed:
            tell(s)

    def aborted(self, s: SequenceState, now: int) -> None:
        """End a request that its client has given up; its turn leaves nothing for the next one."""
        s.status = Status.ABORTED
        self.store.note(FINISH, now, s.request, 0)
        if self.records_all:
            self.recorder.log_milestone("finish", s, self.machine, now)
        self.requests -= 1
        if s.prefill_end_time_ns < 0:
            self.queued_tokens -= s.prompt_num_tokens
            self.expected_prefill_tokens -= s.expected_prefill_tokens
        elif s.decode_machine == self.machine:
            self.queued_tokens -= s.prompt_num_tokens
        self.recorder.close(s, s.machine)
        for tell in self._closed:
            tell(s)
