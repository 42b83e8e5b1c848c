"""Speculative decoding: a decode step verifies drafted tokens and yields one more than it accepts."""

from __future__ import annotations

from kvcache_sim.base.values import Value

_MASK = (1 << 64) - 1


class SpeculationSettings(Value):
    """Drafted tokens per step; a token and all before it are accepted at the rate of its position.

    ``rates`` never rise; their sum is the mean of accepted tokens. ``draft_ns`` is the extra time of a step
    with drafts. ``loses_last_block``: the last block of every hit is computed again, for drafters that read
    the target's hidden states (EAGLE, MTP). ``key`` distinguishes the random draws of different runs.
    """

    rates: tuple[float, ...]
    draft_ns: int = 0
    loses_last_block: bool = False
    key: int = 0

    @property
    def tokens(self) -> int:
        """Tokens drafted at a time."""
        return len(self.rates)


class SpeculationRules(Value):
    """The settings in the core's format; rates are ``thresholds`` of 2^64."""

    thresholds: tuple[int, ...]
    key: int
    draft_ns: int

    @classmethod
    def of(cls, settings: SpeculationSettings) -> SpeculationRules:
        """Return the rules of some settings."""
        thresholds = tuple(min(int(rate * (1 << 64)), _MASK) for rate in settings.rates)
        return cls(thresholds, settings.key, settings.draft_ns)
