"""The schedule of an engine: every step and every admission, and counts over them."""

from __future__ import annotations

from kvcache_sim.base.values import Struct, field


class ScheduleCounts(Struct):
    """Counts over a schedule, in the core's order."""

    scheduled_tokens: int = 0
    preemptions: int = 0
    readmissions: int = 0
    hit_tokens_first: int = 0
    hit_tokens_readmitted: int = 0
    #: When the last step ended.
    end_ns: int = 0
    #: Most requests running, and most waiting, after a schedule.
    max_running: int = 0
    max_waiting: int = 0
    #: Schedules without tokens.
    zero_token_steps: int = 0


class ScheduleLog(Struct):
    """One machine's schedule."""

    counts: ScheduleCounts = field(default_factory=ScheduleCounts)
    #: (start ns, prefill tokens, decode tokens, running, waiting), the last two after the decision.
    steps: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    #: (step, request, cached tokens).
    admissions: list[tuple[int, int, int]] = field(default_factory=list)
    #: By finished request: (number, first token ns, last token ns, first cached tokens, preemptions).
    requests: list[tuple[int, int, int, int, int]] = field(default_factory=list)
