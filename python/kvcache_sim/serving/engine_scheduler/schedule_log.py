"""The schedule, written down: every step and every admission, and what they add up to."""

from __future__ import annotations

from dataclasses import field

from kvcache_sim.values import dataclass


@dataclass(slots=True)
class ScheduleCounts:
    """What a schedule adds up to; in the order in which the core hands its own over."""

    scheduled_tokens: int = 0
    preemptions: int = 0
    readmissions: int = 0
    hit_tokens_first: int = 0
    hit_tokens_readmitted: int = 0
    #: When the last step ended.
    end_ns: int = 0
    #: Most requests that ran, and that waited, after a schedule.
    max_running: int = 0
    max_waiting: int = 0
    #: Schedules that computed nothing.
    zero_token_steps: int = 0

    def admitted(self, cached_tokens: int, first: bool) -> None:
        """Count an admission, a request's first or one after a preemption."""
        if first:
            self.hit_tokens_first += cached_tokens
        else:
            self.readmissions += 1
            self.hit_tokens_readmitted += cached_tokens

    def preempted(self) -> None:
        """Count a preemption."""
        self.preemptions += 1

    def scheduled(self, tokens: int, lengths: tuple[int, int]) -> None:
        """Count a decided step of so many tokens, after which so many run and wait."""
        self.max_running = max(self.max_running, lengths[0])
        self.max_waiting = max(self.max_waiting, lengths[1])
        self.scheduled_tokens += tokens
        self.zero_token_steps += tokens == 0

    def ended(self, now_ns: int) -> None:
        """Note when the last step so far ended."""
        self.end_ns = now_ns


@dataclass(slots=True)
class ScheduleLog:
    """One machine's schedule."""

    counts: ScheduleCounts = field(default_factory=ScheduleCounts)
    #: (start ns, prefill tokens, decode tokens, running, waiting), the last two once it was decided.
    steps: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    #: (step, request, cached tokens).
    admissions: list[tuple[int, int, int]] = field(default_factory=list)
    #: Of each finished request (number, first token ns, last token ns, first cached tokens, preemptions).
    requests: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def admitted(self, request: int, cached_tokens: int, first: bool) -> None:
        """Note an admission to the step that is being composed."""
        self.admissions.append((len(self.steps), request, cached_tokens))
        self.counts.admitted(cached_tokens, first)

    def scheduled(self, begin_ns: int, tokens: tuple[int, int], lengths: tuple[int, int]) -> None:
        """Note a decided step: its (prefill, decode) tokens, and how many run and wait then."""
        self.counts.scheduled(sum(tokens), lengths)
        if sum(tokens):
            self.steps.append((begin_ns, *tokens, *lengths))
