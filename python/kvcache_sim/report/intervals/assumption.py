"""One assumption of a scenario: its interval, where that is stated, and the settings at another value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvcache_sim.model.hosts import load_host
from kvcache_sim.model.stated_errors import Factors, around
from kvcache_sim.serving.settings import ClusterSettings

#: Return the settings with the assumed figure multiplied by a factor.
Apply = Callable[[ClusterSettings, float], ClusterSettings]

#: A step or a link as a whole, a cost that is part of its time, or memory for KV.
Kind = Literal["step", "step part", "link", "link part", "capacity"]


@dataclass(frozen=True, slots=True)
class Assumption:
    """A figure that a scenario assumes, and the factors between which the true figure may lie.

    ``grows_slower`` is True if a larger value means more time (steps, links), False if less (capacity).
    """

    name: str
    factors: Factors
    #: Source of the interval, or the usual error that was taken.
    stated: str
    is_stated: bool
    apply: Apply
    grows_slower: bool = True
    kind: Kind = "step"
    #: Name of the error that it shares with others; "" for an error of its own.
    error: str = ""

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


class HostFigure(NamedTuple):
    """The key of a figure of hosts, and the unit behind it, such as ``_ns``."""

    key: str
    unit: str


class UsualError(NamedTuple):
    """The source of a stated range, and the error in per cent where none is stated."""

    source: str
    percent: float


def host_interval(
    host: str, figure: HostFigure, value: float, usual: UsualError
) -> tuple[Factors, str, bool]:
    """Return the interval of a figure that a host preset may give, as ``interval`` does.

    ``usual`` has the source of the host's range, and the error of a figure that is not the host's own or has
    no range.
    """
    key, unit = figure
    spec = load_host(host) if host else None
    between = getattr(spec, f"{key}_range{unit}", None)
    if not between or getattr(spec, f"{key}{unit}") != value:
        return interval(None, "as given it states no error", usual.percent)
    low, high = between
    return interval(Factors(low / value, high / value), usual.source, usual.percent)
