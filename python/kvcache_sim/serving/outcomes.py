"""The outcome of a look-up under seed 000's names, decided at the first admission."""

from __future__ import annotations

from kvcache_sim.serving.sequence import SequenceState

CONVERSATIONAL_HIT, CROSS_REQUEST_HIT, MISS_FULL, FULL_HIT_NO_PREFILL_NEEDED, UNEXPECTED_PROMPT = range(5)


class Outcomes:
    """Decides outcomes from the cache alone, never from labels."""

    def decide(self, s: SequenceState, full: bool) -> tuple[int, ...]:
        """Return the events of a first admission, and keep the outcome on the sequence."""
        events = (CROSS_REQUEST_HIT,) if s.cached_prefix_length_used else (MISS_FULL,)
        s.outcome = events[-1]
        return (*events, FULL_HIT_NO_PREFILL_NEEDED) if full else events

    def turn_completed(self, s: SequenceState, now_ns: int) -> None:
        """Note that a request has finished."""
