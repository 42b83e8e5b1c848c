"""Rules of a hand-over decided per request (conditional disaggregation): ``handover.decide``.

The decode machine is asked first. A request that is not handed over is served whole there: its prompt hits
that machine's cache, on every tier, and is computed between its decode steps.

| ``handover.decide`` | handed over |
|---|---|
| ``threshold`` | more than ``threshold_tokens`` of the prompt are not cached on the decode machine |
| ``shorter-wait`` | its first token is expected earlier from the prefill machine, the hand-over included |
| ``llm-d`` | llm-d's prefix-based-pd-decider |
| ``dynamo-isl-bounding`` | unless the uncached part is short, and a small share of the prompt |
| ``dynamo-prefill-load`` | unless the prefill machine has too many tokens to compute |
| ``dynamo-isl-or-load`` | unless one of the two holds |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvcache_sim.serving.settings import HandoverSettings


class Asked(NamedTuple):
    """Facts of a prompt, its decode machine, and the prefill machine that the router chose."""

    prompt_tokens: int
    #: Of the prompt on the decode machine: tokens on any tier, and with the credit of each block's tier.
    cached_tokens: int
    credited_tokens: int
    #: Tokens that the prefill machine has to compute, and the most of one step.
    prefill_tokens: int = 0
    step_tokens: int = 1
    #: Expected times to the first token (ns) from the decode machine, and from the prefill machine.
    wait_ns: int = 0
    prefill_wait_ns: int = 0


class Rule(NamedTuple):
    """A rule of ``handover.decide``."""

    #: True if a prompt goes to a prefill machine.
    hands_over: Callable[[HandoverSettings, Asked], bool]
    #: The keys of the section ``handover`` that it reads; its ``threshold_tokens`` if not given.
    keys: tuple[str, ...] = ()
    threshold_tokens: int = 0
    #: True if it reads the load of the prefill machine; if it estimates both waits.
    reads_prefill: bool = False
    estimates: bool = False
    #: True if the decode machine is chosen again when the prompt is computed (Dynamo), not kept (llm-d).
    chooses_again: bool = False


def _above_threshold(settings: HandoverSettings, asked: Asked) -> bool:
    return asked.prompt_tokens - asked.cached_tokens > least_tokens(settings)


def _shorter_wait(_: HandoverSettings, asked: Asked) -> bool:
    return asked.prefill_wait_ns < asked.wait_ns


def _llm_d(settings: HandoverSettings, asked: Asked) -> bool:
    """Return True as prefix-based-pd-decider of llm-d/llm-d-router at ebab6879 does."""
    least = least_tokens(settings)
    if not least or asked.prompt_tokens < max(settings.min_prompt_tokens, least):
        return False
    return asked.prompt_tokens - asked.cached_tokens >= least


def _is_long(settings: HandoverSettings, asked: Asked) -> bool:
    """Return True unless isl_bounding says local: dynamo-kv-router 1.6.1, conditional_disagg.rs."""
    new = asked.prompt_tokens - min(asked.credited_tokens, asked.prompt_tokens)
    share = new / max(asked.prompt_tokens, 1)
    return not (new < least_tokens(settings) and share < settings.threshold_share)


def _is_idle(settings: HandoverSettings, asked: Asked) -> bool:
    """Return True unless prefill_load says local: dynamo-kv-router 1.6.1, scheduling/types.rs."""
    assert settings.prefill_busy is not None
    return not asked.prefill_tokens > settings.prefill_busy * asked.step_tokens


def _is_long_and_idle(settings: HandoverSettings, asked: Asked) -> bool:
    return _is_long(settings, asked) and _is_idle(settings, asked)


_ISL, _LOAD = ("threshold_tokens", "threshold_share"), ("prefill_busy",)

#: Every request is handed over, and its decode machine chosen when its prompt is computed.
ALWAYS = Rule(lambda *_: True)

#: Every other rule by name.
RULES: dict[str, Rule] = {
    "threshold": Rule(_above_threshold, ("threshold_tokens",), 2048),
    "shorter-wait": Rule(_shorter_wait, reads_prefill=True, estimates=True),
    "llm-d": Rule(_llm_d, ("threshold_tokens", "min_prompt_tokens"), 16),
    "dynamo-isl-bounding": Rule(_is_long, _ISL, 2048, chooses_again=True),
    "dynamo-prefill-load": Rule(_is_idle, _LOAD, reads_prefill=True, chooses_again=True),
    "dynamo-isl-or-load": Rule(
        _is_long_and_idle, (*_ISL, *_LOAD), 2048, reads_prefill=True, chooses_again=True
    ),
}


def least_tokens(settings: HandoverSettings) -> int:
    """Return the threshold of the rule in uncached tokens: its own if the scenario gives none."""
    given = settings.threshold_tokens
    return RULES[settings.decide].threshold_tokens if given is None else given
