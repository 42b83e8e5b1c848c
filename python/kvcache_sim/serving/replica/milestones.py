"""What the milestones of a request change: its times, the machine's load, the records."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.cache.store import ADMIT, FINISH, FIRST_TOKEN, HANDOVER, PREEMPT, BlockStore
from kvcache_sim.serving.outcomes import Outcomes
from kvcache_sim.serving.recorder import Recorder
from kvcache_sim.serving.sequence import SequenceState, Status


class Milestones:
    """Keeps the time of one machine's requests and counts what was sent there."""

    def __init__(self, machine: int, store: BlockStore, recorder: Recorder, outcomes: Outcomes) -> None:
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
        #: Told when a request leaves this machine.
        self.on_close: Callable[[SequenceState], None] = lambda sequence: None
        #: Told when a request's prompt is computed.
        self.on_prefilled: Callable[[SequenceState], None] = lambda sequence: None
        self.records_all = False

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
        self._log("admit", s, now)

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
            s.prompt_tokens_fully_processed = s.prompt_num_tokens
            s.status = Status.DECODING
        else:
            s.first_decode_ns += now - s.since_ns
        s.since_ns = now
        self.queued_tokens -= s.prompt_num_tokens
        self.expected_prefill_tokens -= s.expected_prefill_tokens
        self.on_prefilled(s)

    def first_token(self, s: SequenceState, now: int) -> None:
        """Show a request's first token."""
        s.first_token_ns = now
        self.store.note(FIRST_TOKEN, now, s.request, 0)
        self._log("first_token", s, now)

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
        self._log("preempt", s, now)

    def finished(self, s: SequenceState, now: int) -> None:
        """End a request whose last token is out."""
        s.generated_tokens = s.output_tokens
        s.finish_ns = now
        s.status = Status.FINISHED
        self.store.note(FINISH, now, s.request, s.output_tokens)
        self._log("finish", s, now)
        self.requests -= 1
        if s.decode_machine == self.machine:
            self.queued_tokens -= s.prompt_num_tokens
        self.outcomes.turn_completed(s, s.output_tokens, now)
        self.recorder.close(s, s.machine)
        self.on_close(s)

    def _log(self, kind: str, s: SequenceState, now: int) -> None:
        if self.records_all:
            self.recorder.log_milestone(kind, s, self.machine, now)
