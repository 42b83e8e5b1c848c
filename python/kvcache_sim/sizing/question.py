"""What is asked of every candidate: the share of requests within their limits, and the rates to try."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.slo import LIMITED
from kvcache_sim.sizing.search import STEP
from kvcache_sim.units import parse_time_ns

#: Speeds tried at most: a thousand times slower and faster than recorded.
_MOST_STEPS = 350
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*%")
_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*/s")


@dataclass(frozen=True, slots=True)
class Question:
    """The least attainment, and the range of rates tried; None: to a thousandth, or a thousand times."""

    attain: float
    min_rate_per_s: float | None = None
    max_rate_per_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse a lowest rate above the highest (``UsageError``)."""
        low, high = self.min_rate_per_s, self.max_rate_per_s
        if low is not None and high is not None and low > high:
            raise UsageError("no rate to try", where="--min-rate, --max-rate", got=f"{low:g}/s, {high:g}/s")

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Question:
        """Return the question that ``parameters`` is of."""
        return cls(**{name: parameters[name] for name in cls.__dataclass_fields__})

    def parameters(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def steps(self, own_rate_per_s: float) -> tuple[int, int]:
        """Return the lowest and the highest step to try for requests that arrive at a rate by themselves.

        Raises UsageError where no step lies between the rates.
        """
        low, high = -_MOST_STEPS, _MOST_STEPS
        growth = math.log(STEP)
        if self.min_rate_per_s is not None:
            low = max(low, math.ceil(math.log(self.min_rate_per_s / own_rate_per_s) / growth - 1e-9))
        if self.max_rate_per_s is not None:
            high = min(high, math.floor(math.log(self.max_rate_per_s / own_rate_per_s) / growth + 1e-9))
        if low > high:
            least, most = (float(STEP**step) * own_rate_per_s for step in (-_MOST_STEPS, _MOST_STEPS))
            raise UsageError(
                "no rate to try",
                where="--min-rate, --max-rate",
                expected=f"a range of 2 % or more within {least:.4g}/s and {most:.4g}/s",
            )
        return low, high


def parse_attain(text: str, where: str = "--attain") -> float:
    """Return the share that ``99%`` means; UsageError otherwise."""
    match = _PERCENT.fullmatch(text.strip())
    share = Fraction(match[1]) / 100 if match is not None else Fraction(0)
    if not 0 < share <= 1:
        raise UsageError("not a share", where=where, got=repr(text), expected="above 0% up to 100%")
    return float(share)


def parse_rate(text: str, where: str) -> float:
    """Return the requests a second that ``2.5/s`` means; UsageError otherwise."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise UsageError(
            "not a rate", where=where, got=repr(text), expected="requests a second, such as 2.5/s"
        )
    return float(match[1])


def parse_limits(text: str, where: str = "--slo") -> dict[str, str]:
    """Return the limits of ``ttft=2s,tpot=50ms`` by name; UsageError for what is none."""
    limits: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not value or name not in LIMITED or name in limits:
            raise UsageError(
                "not limits", where=where, got=repr(text), expected="ttft=TIME, tpot=TIME, e2e=TIME by commas"
            )
        try:
            if not parse_time_ns(value):
                raise UsageError("not a limit", got=repr(value), expected="a time above 0")
        except UsageError as error:
            error.where = f"{where} {name}"
            raise
        limits[name] = value
    return limits
