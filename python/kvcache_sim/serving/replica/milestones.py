"""What the milestones of a request change: its times, the machine's load, the records."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.cache.store import ADMIT, FINISH, FIRST_TOKEN, PREEMPT, BlockStore
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

    def arrived(self, s: SequenceState, now: int) -> None:
        """Count a request that was sent here."""
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

    def first_token(self, s: SequenceState, now: int) -> None:
        """End a request's prefill, or the first decode step of one without."""
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
        self._log("first_token", s, now)
        self.on_first_token(s)

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
        self.outcomes.turn_completed(s, now)
        self.recorder.close(s, self.machine)
        self.on_close(s)

    def _log(self, kind: str, s: SequenceState, now: int) -> None:
        if self.records_all:
            self.recorder.log_milestone(kind, s, self.machine, now)
