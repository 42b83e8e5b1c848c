"""One assumption of a scenario: its interval, where that is stated, and the settings at another value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvcache_sim.model.stated_errors import Factors, around
from kvcache_sim.serving.settings import ClusterSettings

#: The settings with what is assumed so many times as large.
Apply = Callable[[ClusterSettings, float], ClusterSettings]


@dataclass(frozen=True, slots=True)
class Assumption:
    """What a scenario takes for true, and between which factors the truth may lie.

    ``grows_slower`` says whether a larger value means more time (steps, links) or less (room).
    """

    name: str
    factors: Factors
    #: Where the interval is stated, or that it is not and what was taken.
    stated: str
    is_stated: bool
    apply: Apply
    grows_slower: bool = True

    @property
    def slow(self) -> float:
        """The end of the interval at which less is served."""
        return self.factors.high if self.grows_slower else self.factors.low

    @property
    def fast(self) -> float:
        """The end of the interval at which more is served."""
        return self.factors.low if self.grows_slower else self.factors.high

    @property
    def interval(self) -> str:
        """The interval as text, ``×0.93–1.07``."""
        return f"×{self.factors.low:.3g}–{self.factors.high:.3g}"


def interval(stated: Factors | None, source: str, usual_percent: float) -> tuple[Factors, str, bool]:
    """Return the factors stated with their source, or ± ``usual_percent`` said to be assumed."""
    if stated is not None:
        return stated, source, True
    return around(usual_percent), f"{source}: ±{usual_percent:g} % assumed", False
