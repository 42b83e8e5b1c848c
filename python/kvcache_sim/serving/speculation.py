"""Speculative decoding: a decode step takes drafted tokens along, and brings one more than it accepts."""

from __future__ import annotations

from dataclasses import field

from kvcache_sim.values import dataclass

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
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


@dataclass(frozen=True, slots=True)
class SpeculationRules:
    """The same as the batches take it, native or not; rates are ``thresholds`` of 2^64."""

    thresholds: tuple[int, ...]
    key: int
    draft_ns: int

    @classmethod
    def of(cls, settings: SpeculationSettings) -> SpeculationRules:
        """Return what a batch is told of some settings."""
        thresholds = tuple(min(int(rate * (1 << 64)), _MASK) for rate in settings.rates)
        return cls(thresholds, settings.key, settings.draft_ns)

    def accepted(self, request: int, computed: int, drafted: int) -> int:
        """Return how many of ``drafted`` tokens are accepted for a request that has KV of so many tokens.

        A function of both, so that it does not depend on how steps are run.
        """
        drawn = self.key + (request + 1) * 0x9E37_79B9_7F4A_7C15 + (computed + 1) * 0xD1B5_4A32_D192_ED03
        drawn = _mixed(drawn & _MASK)
        return min(drafted, sum(drawn < threshold for threshold in self.thresholds))


def _mixed(x: int) -> int:
    """The last mixing of splitmix64: every bit of the answer depends on every bit."""
    x = (x ^ x >> 30) * 0xBF58_476D_1CE4_E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D0_49BB_1331_11EB & _MASK
    return x ^ x >> 31


@dataclass(slots=True)
class Accepted:
    """What was drafted and accepted: decode steps of a sequence, tokens, and by position those accepted."""

    steps: int = 0
    drafted: int = 0
    by_position: list[int] = field(default_factory=list)

    def count(self, drafted: int, accepted: int) -> None:
        """Count the drafts of one sequence in one step."""
        self.steps += 1
        self.drafted += drafted
        self.by_position += [0] * (drafted - len(self.by_position))
        for position in range(accepted):
            self.by_position[position] += 1

    def as_tuple(self) -> tuple[int, int, list[int]]:
        """Return the counts as the native batch does."""
        return self.steps, self.drafted, self.by_position
