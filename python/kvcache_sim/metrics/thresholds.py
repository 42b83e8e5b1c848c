"""Thresholds, for example ``ttft.p99 > 2s`` or ``ttft.p99 > +5%``: one grammar for all commands."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import NS_PER_MS, NS_PER_S, parse_size_bytes, parse_time_ns
from kvcache_sim.metrics.names import metric_value, resolve_metric, unit_of

Against = Literal["limit", "baseline share", "baseline difference"]

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_GRAMMAR = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(>=|<=|==|>|<)\s*(\S.*?)\s*$")
_EXPECTED = "METRIC >|<|>=|<=|== VALUE, such as 'ttft.p99 > 2s', 'hit_rate < 30%' or 'ttft.p99 > +5%'"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One condition on a number of the summary.

    ``amount`` is in the metric's own unit (ms for latencies), or a share for ``baseline share``: a signed
    value in the text (``+5%``, ``-20ms``) is measured from the baseline run's number.
    """

    text: str
    metric: str
    comparison: str
    amount: float
    against: Against

    @property
    def needs_baseline(self) -> bool:
        """Return True if the condition needs a baseline run."""
        return self.against != "limit"

    def holds(self, summary: Mapping[str, object], baseline: Mapping[str, object] | None = None) -> bool:
        """Return True if a run meets the condition; a number that was never measured meets none.

        Raises ``UsageError`` for a signed value without a baseline.
        """
        value = metric_value(summary, self.metric)
        limit = self.limit(baseline)
        return value is not None and limit is not None and _COMPARE[self.comparison](value, limit)

    def limit(self, baseline: Mapping[str, object] | None = None) -> float | None:
        """Return the limit in the metric's unit; None if the baseline never measured the metric."""
        if self.against == "limit":
            return self.amount
        if baseline is None:
            raise UsageError(
                f"{self.text!r} is measured from a baseline run and none is given",
                expected="a value without a sign, or a baseline",
            )
        base = metric_value(baseline, self.metric)
        if base is None:
            return None
        return base * (1 + self.amount) if self.against == "baseline share" else base + self.amount


def parse_threshold(text: str, where: str = "--fail-if") -> Threshold:
    """Return the threshold of a text; raises ``UsageError`` with the wrong part."""
    match = _GRAMMAR.match(text)
    if match is None or len(text) > 200:
        raise UsageError("not a threshold", where=where, got=repr(text[:200]), expected=_EXPECTED)
    metric = resolve_metric(match[1], where)
    value = match[3]
    signed = value[0] in "+-"
    if value.endswith("%"):
        amount = _number(value[:-1], text, where) / 100
        if signed:
            return Threshold(text, metric, match[2], amount, "baseline share")
        if unit_of(metric) != "share":
            raise UsageError(
                f"{metric} is no share", where=where, got=repr(text), expected="a signed share, such as +5%"
            )
        return Threshold(text, metric, match[2], amount, "limit")
    amount = _in_unit(value.lstrip("+-"), unit_of(metric), text, where)
    if not signed:
        return Threshold(text, metric, match[2], amount, "limit")
    return Threshold(text, metric, match[2], -amount if value[0] == "-" else amount, "baseline difference")


def _number(value: str, text: str, where: str) -> float:
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", value.strip()) or not isfinite(
        float(value)
    ):
        raise UsageError("threshold without a number", where=where, got=repr(text), expected=_EXPECTED)
    return float(value)


def _in_unit(value: str, unit: str, text: str, where: str) -> float:
    try:
        if unit == "ms":
            return parse_time_ns(value) / NS_PER_MS
        if unit == "s":
            return parse_time_ns(value) / NS_PER_S
        if unit == "bytes":
            return float(parse_size_bytes(value))
    except UsageError as error:
        raise UsageError(error.what, where=where, got=repr(text), expected=error.expected) from None
    return _number(value, text, where)
