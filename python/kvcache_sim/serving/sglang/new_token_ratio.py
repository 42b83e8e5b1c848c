"""The share of an answer that is reserved at an admission: it falls step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Tokens of an answer that a retraction counts with for each request that goes on.
RETRACT_DECODE_STEPS = 20
#: ``SGLANG_INIT_NEW_TOKEN_RATIO``, ``_MIN_NEW_TOKEN_RATIO_FACTOR`` and ``_NEW_TOKEN_RATIO_DECAY_STEPS``.
_FIRST, _LEAST_FACTOR, _DECAY_STEPS = 0.7, 0.14, 600


@dataclass(slots=True)
class NewTokenRatio:
    """The share, after ``scheduler_components/new_token_ratio_tracker.py``."""

    conservativeness: float
    current: float = field(init=False)
    _first: float = field(init=False)
    _least: float = field(init=False)

    def __post_init__(self) -> None:
        self._first = min(_FIRST * self.conservativeness, 1.0)
        self._least = min(self._first * _LEAST_FACTOR, 1.0)
        self.current = self._first

    def decays(self) -> None:
        """Fall: a decode step without a retraction."""
        self.current = max(self.current - (self._first - self._least) / _DECAY_STEPS, self._least)

    def retracted(self, requests: int, out: int, answers: int) -> None:
        """Be set anew: so many requests go on, with so many tokens out of all their answers."""
        self.current = min((out + RETRACT_DECODE_STEPS * requests) / (answers + 1), 1.0)

    def rests(self) -> None:
        """Start again: nothing is left to do."""
        self.current = self._first
