"""The question to every candidate (share of requests within limits, loads to try) and the answer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_time_ns, significant
from kvcache_sim.extras.study.sizing.search import STEP
from kvcache_sim.extras.study.sweeps.single_run import typed
from kvcache_sim.metrics.objectives import pareto_front
from kvcache_sim.metrics.slo import LIMITED

#: Speeds tried at most: a thousand times slower and faster than recorded.
_MOST_STEPS = 350
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*%")
_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*/s")


class Load(NamedTuple):
    """The load that a search scales: its name, its words behind a number, and its figure in a row."""

    name: str
    behind: str
    short: str
    figure: str

    def text(self, value: float, short: bool = False) -> str:
        """Return a value in words."""
        number, one = (significant(value), False) if self is RATE else (f"{value:,.0f}", value == 1)
        text = f"{number}{self.short}" if short else f"{number} {self.behind}"
        return text.removesuffix("s") if one else text

    def figure_of(self, name: str) -> str:
        """Return the name of a figure that ``name`` has for rates."""
        return name if self is RATE else name.replace("rate_per_s", "sessions").replace("_per_s", "_sessions")


RATE = Load("rate", "requests/s", "/s", "rate_per_s")
SESSIONS = Load("number of sessions", "sessions", " sessions", "sessions")


@dataclass(frozen=True, slots=True)
class Question:
    """The least attainment, and the range of rates tried; None: to a thousandth, or a thousand times."""

    attain: float
    min_rate_per_s: float | None = None
    max_rate_per_s: float | None = None
    #: Sessions at a time are searched, not the rate of arrivals.
    sessions: bool = False

    def __post_init__(self) -> None:
        """Raise ``UsageError`` if the lowest rate is above the highest."""
        low, high = self.min_rate_per_s, self.max_rate_per_s
        if low is not None and high is not None and low > high:
            raise UsageError("no rate to try", where="--min-rate, --max-rate", got=f"{low:g}/s, {high:g}/s")
        if self.sessions and (low is not None or high is not None):
            hint = "leave one of them"
            raise UsageError("rates are not searched", where="--sessions, --min-rate, --max-rate", hint=hint)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> Question:
        """Return the question from the values of ``parameters``."""
        return cls(**{name: parameters[name] for name in cls.__dataclass_fields__})

    def parameters(self) -> dict[str, Any]:
        """Return the question as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def steps(self, own_rate_per_s: float) -> tuple[int, int]:
        """Return the lowest and the highest step to try, given the trace's own rate.

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
    """Parse a share such as ``99%``; raises UsageError."""
    match = _PERCENT.fullmatch(text.strip())
    share = Fraction(match[1]) / 100 if match is not None else Fraction(0)
    if not 0 < share <= 1:
        raise UsageError("not a share", where=where, got=repr(text), expected="above 0% up to 100%")
    return float(share)


def parse_rate(text: str, where: str) -> float:
    """Parse a rate such as ``2.5/s`` into requests a second; raises UsageError."""
    match = _RATE.fullmatch(text.strip())
    if match is None or not float(match[1]):
        raise UsageError(
            "not a rate", where=where, got=repr(text), expected="requests a second, such as 2.5/s"
        )
    return float(match[1])


def parse_need(text: str, where: str, sessions: bool) -> float:
    """Parse what has to be held: a rate such as ``2.5/s``, or a number of sessions; raises UsageError."""
    if not sessions:
        return parse_rate(text, where)
    if not re.fullmatch(r"[1-9]\d{0,8}", text.strip()):
        raise UsageError("not a number of sessions", where=where, got=repr(text), expected="such as 200")
    return float(text)


def parse_limits(text: str, where: str = "--slo") -> dict[str, str]:
    """Parse limits such as ``ttft=2s,tpot=50ms`` into a mapping by name; raises UsageError."""
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


Row = Mapping[str, object]

_HOURLY = "capacity.cost_per_hour"
#: Figures of a candidate in JSON, besides its settings.
_REPORTED = (
    "verdict",
    "sessions",
    "rate_per_s",
    "requests_low_per_s",
    "requests_high_per_s",
    "attainment",
    "below.sessions",
    "below.rate_per_s",
    "below.attainment",
    "above.sessions",
    "above.rate_per_s",
    "above.attainment",
    "holds_to_per_s",
    "attains_to_per_s",
    "lowest_tried_per_s",
    "highest_tried_per_s",
    "own_rate_per_s",
    "judged",
    "is_few",
    "waits",
    "runs",
    "machines",
    "cost_per_hour",
    "cost_per_million_requests",
)
_FIGURES = (
    "latency.ttft.p99",
    "latency.tpot.avg",
    "cache.token_hit_rate",
    "goodput.requests_per_s",
    "cost.per_million_output_tokens",
    "step_times.source",
    "step_times.factor_low",
    "step_times.factor_high",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of all candidates, in the study's order, with the cheapest and the frontier."""

    rows: tuple[Row, ...]
    #: The rate that the cheapest design has to hold; None: any, the least cost a request.
    need_per_s: float | None = None
    #: Counts of machines between those given were tried, in groups of so many; None: they were not.
    unit: int | None = None
    #: Splits into pools were searched.
    pools: bool = False
    #: The limits asked for, by name.
    limits: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_priced(self) -> bool:
        """True if every candidate has prices; otherwise the number of machines is the cost."""
        return all(isinstance(row.get(_HOURLY), float) for row in self.holding) and bool(self.holding)

    @property
    def load(self) -> Load:
        """The load that was searched."""
        return load_of(self.rows[0]) if self.rows else RATE

    @property
    def _held(self) -> str:
        return f"capacity.{self.load.figure}"

    @property
    def holding(self) -> tuple[Row, ...]:
        """The candidates that hold some rate."""
        return tuple(row for row in self.rows if isinstance(row.get(self._held), (int, float)))

    def price(self, row: Row) -> float:
        """Return a candidate's cost per hour, or its number of machines."""
        return float(str(row[_HOURLY if self.is_priced else "capacity.machines"]))

    def rate(self, row: Row) -> float:
        """Return the requests a second, or the sessions, that a candidate holds."""
        return float(str(row[self._held]))

    @property
    def frontier(self) -> tuple[Row, ...]:
        """The candidates that no other beats in both cost and rate, from the cheapest on."""
        held = self.holding
        front = pareto_front([(self.price(row), -self.rate(row)) for row in held])
        return tuple(
            sorted((held[index] for index in front), key=lambda row: (self.price(row), self.rate(row)))
        )

    @property
    def cheapest(self) -> Row | None:
        """The cheapest candidate that holds the rate needed, or without one the cheapest a request."""
        if self.need_per_s is not None:
            able = [row for row in self.holding if self.rate(row) >= self.need_per_s]
            return min(able, key=lambda row: (self.price(row), -self.rate(row)), default=None)
        return min(self.holding, key=lambda row: self.price(row) / self.rate(row), default=None)

    def as_json(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer as plain values: the question, a row a candidate, frontier and cheapest."""
        cheapest = self.cheapest
        return {
            **asked,
            "need_per_s": self.need_per_s,
            "cost_is": "currency an hour" if self.is_priced else "machines",
            "candidates": [_plain(row) for row in self.rows],
            "frontier": [row["cell"] for row in self.frontier],
            "cheapest": None if cheapest is None else cheapest["cell"],
        }


def load_of(row: Row) -> Load:
    """Return the load that was searched for a candidate."""
    return SESSIONS if row.get("capacity.load") == SESSIONS.behind else RATE


def settings_text(row: Row) -> str:
    """Return the settings of a candidate as options of the command line."""
    found = {
        name: value for name, value in row.items() if name.startswith("set.") and not _no_pool(name, value)
    }
    return ", ".join(f"{name.removeprefix('set.')}={typed(value)}" for name, value in found.items())


def _no_pool(name: str, value: object) -> bool:
    """Return True for the size of a pool that a candidate does not have."""
    return name.startswith("set.pools.") and not value


def _plain(row: Row) -> dict[str, Any]:
    reported = {name: row.get(f"capacity.{name}") for name in _REPORTED}
    return {
        "cell": row["cell"],
        "status": row["status"],
        "error": row["error"],
        "settings": {n.removeprefix("set."): v for n, v in row.items() if n.startswith("set.")},
        **reported,
        **{name: row.get(name) for name in _FIGURES},
    }
