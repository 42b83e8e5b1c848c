"""Speculative decoding: a decode step takes drafted tokens along, and brings one more than it accepts."""

from __future__ import annotations

from kvcache_sim.values import Value

_MASK = (1 << 64) - 1


class SpeculationSettings(Value):
    """How tokens are drafted: so many a step, each accepted with those before it at the rate of its position.

    ``rates`` never rise; their sum is the mean of accepted tokens. ``draft_ns`` is the time that a step with
    drafts takes beside its own. ``loses_last_block``: the last block of every hit is computed again, for
    drafters that read the target's hidden states (EAGLE, MTP). ``key`` tells the draws of a run from those of
    another.
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
    """The same as the core takes it; rates are ``thresholds`` of 2^64."""

    thresholds: tuple[int, ...]
    key: int
    draft_ns: int

    @classmethod
    def of(cls, settings: SpeculationSettings) -> SpeculationRules:
        """Return the rules of some settings."""
        thresholds = tuple(min(int(rate * (1 << 64)), _MASK) for rate in settings.rates)
        return cls(thresholds, settings.key, settings.draft_ns)
