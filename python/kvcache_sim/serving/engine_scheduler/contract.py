"""What an engine's own scheduler is: its queue, its admission and its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.serving.engine_scheduler.schedule_log import ScheduleLog
from kvcache_sim.serving.gaps import TokenGaps
from kvcache_sim.serving.sequence import SequenceState


@dataclass(slots=True)
class Step:
    """A decided step: what it computes, and when; each engine adds for whom.

    It begins when the tokens of the step before are seen, and ends when its own are; the GPU has computed it
    at ``computed_ns``, maybe earlier.
    """

    batch: StepBatch
    begin_ns: int = 0
    end_ns: int = 0
    computed_ns: int = 0

    def lasts(self, begin_ns: int, duration_ns: int) -> None:
        """Note when it begins and how long it takes."""
        self.begin_ns, self.end_ns = begin_ns, begin_ns + duration_ns
        self.computed_ns = self.end_ns

    def is_followed(self, launched_ns: int) -> None:
        """Note that its tokens are seen once the step behind it has been launched."""
        self.end_ns = max(self.computed_ns, launched_ns)

    @property
    def tokens(self) -> tuple[int, int]:
        """Prefill and decode tokens."""
        return sum(new for new, _ in self.batch.prefill_chunks), self.batch.decode_sequences


@dataclass(slots=True)
class Given:
    """The tokens given out so far: how many, and the times between two of one request."""

    tokens: int = 0
    gaps: TokenGaps = field(default_factory=TokenGaps)

    def token(self, now: int, before_ns: int | None) -> None:
        """Count a token; ``before_ns``: when its request got the one before it, None for its first."""
        self.tokens += 1
        if before_ns is not None:
            self.gaps.add(now - before_ns)


S = TypeVar("S", bound=Step)


class EngineScheduler(Protocol[S]):
    """Decides who waits, who is admitted and what each step computes, by one engine's rules."""

    given: Given
    #: Whether a step is decided while the one before it runs.
    looks_ahead: bool
    #: How often it is asked in a row for a step while nothing is computed: passes of the engine's loop.
    passes: int

    @property
    def log(self) -> ScheduleLog | None:
        """What was written down of the schedule; None where nothing was."""
        ...

    def log_schedule(self) -> None:
        """Start writing the schedule down."""
        ...

    def enqueue(self, state: SequenceState) -> None:
        """Queue a request that has been looked up."""
        ...

    def next_step(self, now: int) -> S | None:
        """Decide on the next step; None where nothing is computed."""
        ...

    def step_ended(self, step: S, now: int) -> None:
        """Give out the tokens that a step has brought."""
        ...

    def give_up(self, request: int, now: int) -> None:
        """Let a request go that its client gave up: what waits at once, what runs at the next boundary."""
        ...

    def let_go(self, now: int) -> None:
        """Free what the running requests have that were given up; steps in flight bring them no token."""
        ...

    def rests(self) -> None:
        """Hear that nothing is being computed, and nothing will be before the next arrival."""
        ...

    def lengths(self) -> tuple[int, int]:
        """Return how many requests run and wait."""
        ...

    def can_ever_hold(self, kv_tokens: int) -> bool:
        """Return whether a request with that many tokens of KV would have room on an empty GPU."""
        ...
