"""What a request found in the cache, under seed 000's five names (section 3.2; semantics 6)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Outcome(IntEnum):
    """The five event types of seed 000, section 5."""

    CONVERSATIONAL_HIT = 0
    CROSS_REQUEST_HIT = 1
    MISS_FULL = 2
    FULL_HIT_NO_PREFILL_NEEDED = 3
    CONVERSATIONAL_MISS_UNEXPECTED_PROMPT = 4


class PrefixCacheEvent(NamedTuple):
    """One event of a look-up: its type, the cached length and the tokens left to prefill."""

    event_type: Outcome
    cached_prefix_length: int
    num_tokens_prefilled_after_cache_check: int


def decide_outcome(
    prompt_tokens: int, session_tokens: int | None, run_tokens: int
) -> tuple[PrefixCacheEvent, ...]:
    """Return the events of a request's first admission, in the order in which they are decided.

    ``session_tokens`` is the cached total of the request's session, None where no turn of it is known;
    ``run_tokens`` the length of the resident run, which is the length of every hit. The order is: a known
    session whose total is not below the prompt, or whose run is resident; else a run shared with other
    requests; else a full miss; then, as a second event, a full hit where no token is left to prefill, which
    only ``full_hit: skip-prefill`` lets happen. So the events hold exactly one of CONVERSATIONAL_HIT,
    CROSS_REQUEST_HIT and MISS_FULL. Labels play no part.
    """
    events = []
    left = prompt_tokens - run_tokens
    unexpected = session_tokens is not None and prompt_tokens <= session_tokens
    if unexpected:
        events.append(PrefixCacheEvent(Outcome.CONVERSATIONAL_MISS_UNEXPECTED_PROMPT, 0, prompt_tokens))
    if run_tokens > 0:
        known = session_tokens is not None and not unexpected
        hit = Outcome.CONVERSATIONAL_HIT if known else Outcome.CROSS_REQUEST_HIT
        events.append(PrefixCacheEvent(hit, run_tokens, left))
        if left == 0:
            events.append(PrefixCacheEvent(Outcome.FULL_HIT_NO_PREFILL_NEEDED, run_tokens, left))
    else:
        events.append(PrefixCacheEvent(Outcome.MISS_FULL, 0, left))
    return tuple(events)


def found(events: tuple[PrefixCacheEvent, ...]) -> Outcome:
    """Return the one of CONVERSATIONAL_HIT, CROSS_REQUEST_HIT and MISS_FULL among a request's events."""
    first = events[0].event_type
    return events[1].event_type if first is Outcome.CONVERSATIONAL_MISS_UNEXPECTED_PROMPT else first
