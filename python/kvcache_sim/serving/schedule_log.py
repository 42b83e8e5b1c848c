"""The schedule of an engine: every step and every admission, and counts over them."""

from __future__ import annotations

from kvcache_sim.values import Struct, field


class ScheduleCounts(Struct):
    """Counts over a schedule, in the order in which the core hands them over."""

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


class ScheduleLog(Struct):
    """One machine's schedule."""

    counts: ScheduleCounts = field(default_factory=ScheduleCounts)
    #: (start ns, prefill tokens, decode tokens, running, waiting), the last two once it was decided.
    steps: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    #: (step, request, cached tokens).
    admissions: list[tuple[int, int, int]] = field(default_factory=list)
    #: Of each finished request (number, first token ns, last token ns, first cached tokens, preemptions).
    requests: list[tuple[int, int, int, int, int]] = field(default_factory=list)
