"""What SGLang's scheduler is told of the scenario's replica."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.serving.settings import ReplicaSettings, SchedulePolicy


@dataclass(frozen=True, slots=True)
class SglangRules:
    """SGLang's options of the same names."""

    schedule_policy: SchedulePolicy
    max_prefill_tokens: int
    enable_mixed_chunk: bool
    schedule_conservativeness: float


def sglang_rules(settings: ReplicaSettings) -> SglangRules:
    """Return the rules that a replica's settings say."""
    return SglangRules(
        settings.schedule_policy,
        settings.max_prefill_tokens,
        settings.enable_mixed_chunk,
        settings.schedule_conservativeness,
    )


def tokens_beside(page: int, kept_free_pages: int) -> int:
    """Return how many tokens beside a request's KV and the pages kept free an empty GPU must have room for.

    An admission asks for less than all but a token and two pages (``init_req_max_new_tokens``).
    """
    return 1 + (2 - kept_free_pages) * page
