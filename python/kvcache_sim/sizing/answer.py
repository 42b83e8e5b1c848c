"""Candidates side by side: what each holds, the cheapest design, and the frontier of cost against rate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcache_sim.metrics.objectives import pareto_front

Row = Mapping[str, object]

_RATE, _HOURLY = "capacity.rate_per_s", "capacity.cost_per_hour"
#: What a row of JSON tells of a candidate besides its settings.
_TOLD = (
    "verdict",
    "rate_per_s",
    "attainment",
    "below.rate_per_s",
    "below.attainment",
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


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of all candidates, in the study's order, and what follows from them."""

    rows: tuple[Row, ...]
    #: The rate that the cheapest design has to hold; None: any, the least cost a request.
    need_per_s: float | None = None

    @property
    def is_priced(self) -> bool:
        """Whether every candidate has prices; else machines stand for cost."""
        return all(isinstance(row.get(_HOURLY), float) for row in self.holding) and bool(self.holding)

    @property
    def holding(self) -> tuple[Row, ...]:
        """The candidates that hold some rate."""
        return tuple(row for row in self.rows if isinstance(row.get(_RATE), float))

    def price(self, row: Row) -> float:
        """Return what a candidate costs an hour, or how many machines it has."""
        return float(str(row[_HOURLY if self.is_priced else "capacity.machines"]))

    def rate(self, row: Row) -> float:
        """Return the requests a second that a candidate holds."""
        return float(str(row[_RATE]))

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
        """Return the answer as plain values: what was asked, a row a candidate, who is best."""
        cheapest = self.cheapest
        return {
            **asked,
            "need_per_s": self.need_per_s,
            "cost_is": "currency an hour" if self.is_priced else "machines",
            "candidates": [_plain(row) for row in self.rows],
            "frontier": [row["cell"] for row in self.frontier],
            "cheapest": None if cheapest is None else cheapest["cell"],
        }


def settings_text(row: Row) -> str:
    """Return the settings of a candidate as they are typed."""
    found = {name: value for name, value in row.items() if name.startswith("set.")}
    return ", ".join(f"{name.removeprefix('set.')}={typed(value)}" for name, value in found.items())


def typed(value: object) -> str:
    """Return a setting as it is typed."""
    return value if isinstance(value, str) else json.dumps(value)


def _plain(row: Row) -> dict[str, Any]:
    told = {name: row.get(f"capacity.{name}") for name in _TOLD}
    figures = ("latency.ttft.p99", "latency.tpot.avg", "cache.token_hit_rate", "goodput.requests_per_s")
    return {
        "cell": row["cell"],
        "status": row["status"],
        "error": row["error"],
        "settings": {n.removeprefix("set."): v for n, v in row.items() if n.startswith("set.")},
        **told,
        **{name: row.get(name) for name in figures},
    }
