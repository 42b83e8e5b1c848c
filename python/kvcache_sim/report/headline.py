"""The figures a report opens with: each run's value, and how it differs from the first run's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvcache_sim.base.units import format_time_ms, significant
from kvcache_sim.metrics.certainty import CERTAIN, intervals_text
from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.compare.comparison import Comparison, Difference
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.unserved import unserved_share
from kvcache_sim.report.upper_bound import UPPER_BOUND, upper_bound_of


class Change(NamedTuple):
    """The difference of a run's figure from the first run's; ``better`` is None where it may be chance."""

    amount: str
    #: The interval of the amount, or why there is none.
    interval: str
    better: bool | None


class Headline(NamedTuple):
    """One card: its words, a value a run, and a change for each run after the first."""

    key: str
    words: str
    definition: str
    values: tuple[str, ...]
    #: The intervals of each value in words, "" where the run stored none.
    certain: tuple[str, ...]
    changes: tuple[Change | None, ...]


class _Figure(NamedTuple):
    metric: str
    words: str
    definition: str
    is_share: bool
    more_is_better: bool
    shown: Callable[[float], str]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _ms(value: float) -> str:
    return format_time_ms(value) if value >= 10_000 else f"{significant(value)} ms"


#: Smallest change that is shown of figures without an interval.
_SMALLEST = 0.001
#: Metric → its figure with intervals.
_CERTAIN = {one.metric: name for name, one in CERTAIN.items()}
#: Requests without an answer: a card where a run has any.
_UNSERVED = "requests.unserved"
#: Groups of the summary that a scenario asks for.
_OPTIONAL = ("cost.", "slo.", "goodput.")
_FIGURES = (
    _Figure(
        _UNSERVED,
        "not served",
        "requests rejected, turned away, or lost with a machine",
        True,
        False,
        _percent,
    ),
    _Figure("cache.token_hit_rate", "hit rate", "prompt tokens served from any tier", True, True, _percent),
    _Figure(
        UPPER_BOUND,
        "upper bound",
        "hit rate of one unbounded cache shared by all machines, on the same prompts",
        True,
        True,
        _percent,
    ),
    _Figure("latency.ttft.p50", "TTFT p50", "first token - arrival, median", False, False, _ms),
    _Figure("latency.ttft.p99", "TTFT p99", "first token - arrival, 99th percentile", False, False, _ms),
    _Figure("latency.tpot.avg", "TPOT mean", "(last - first token) / (output tokens - 1)", False, False, _ms),
    _Figure(
        "throughput.output_tokens_per_s",
        "throughput",
        "generated tokens / time from first arrival to last token",
        False,
        True,
        lambda value: f"{significant(value)} tok/s",
    ),
    _Figure("slo.attainment", "SLO attainment", "requests within all their limits", True, True, _percent),
    _Figure(
        "goodput.requests_per_s",
        "goodput",
        "requests within all their limits / time from first arrival to last token",
        False,
        True,
        lambda value: f"{significant(value)} req/s",
    ),
    _Figure(
        "cost.per_million_output_tokens",
        "cost/M output tokens",
        "at the scenario's prices, in their currency, of a million generated tokens",
        False,
        False,
        significant,
    ),
)


def headlines(cases: Sequence[Case], comparisons: Sequence[Comparison]) -> list[Headline]:
    """Return the cards of runs; ``comparisons`` are of each run after the first with the first.

    A figure of prices or objectives is left out where no run has any; any other that a run lacks reads "–".
    """
    cards = []
    for figure in _FIGURES:
        values = [_value(case, figure) for case in cases]
        if figure.metric.startswith(_OPTIONAL) and all(value is None for value in values):
            continue
        if figure.metric == _UNSERVED and not any(values):
            continue
        changes: list[Change | None] = [None]
        for comparison, value in zip(comparisons, values[1:], strict=True):
            changes.append(_change(figure, comparison, values[0], value))
        shown = tuple(
            "–" if value is None else f"{_currency(case, figure)}{figure.shown(value)}"
            for case, value in zip(cases, values, strict=True)
        )
        certain = tuple(_intervals(case, figure) for case in cases)
        cards.append(Headline(figure.metric, figure.words, figure.definition, shown, certain, tuple(changes)))
    return cards


def _currency(case: Case, figure: _Figure) -> str:
    named = (case.run.summary.get("cost") or {}).get("currency")
    return f"{named} " if named and figure.metric.startswith("cost.") else ""


def _intervals(case: Case, figure: _Figure) -> str:
    name = _CERTAIN.get(figure.metric)
    return "" if name is None else intervals_text(case.run.summary, name)


def _value(case: Case, figure: _Figure) -> float | None:
    if figure.metric == UPPER_BOUND:
        return upper_bound_of(case.run)
    if figure.metric == _UNSERVED:
        return unserved_share(case.run.summary)
    return metric_value(case.run.summary, figure.metric)


def _change(
    figure: _Figure, comparison: Comparison, base: float | None, value: float | None
) -> Change | None:
    if base is None or value is None:
        return None
    for difference in comparison.differences:
        if difference.statistic.metric == figure.metric and difference.change is not None:
            shown = _measured(figure, difference)
            is_ranked = comparison.ranks(difference.statistic)
            return shown if is_ranked else Change(shown.amount, "saturated: not ranked", None)
    if base == value:
        return Change("the same", "", None)
    if not figure.is_share and base == 0:
        return None
    change = value - base if figure.is_share else value / base - 1
    if abs(change) < _SMALLEST:
        return Change(f"the same within {100 * _SMALLEST:g} %", "", None)
    amount = _signed(figure, change if figure.is_share else value / base)
    interval = (
        "a property of the requests" if figure.metric == UPPER_BOUND else "one figure a run: no interval"
    )
    return Change(amount, interval, (value > base) == figure.more_is_better)


def _measured(figure: _Figure, difference: Difference) -> Change:
    change = difference.change or 0.0
    low, high = _signed(figure, difference.low), _signed(figure, difference.high)
    interval = f"{low.removesuffix(' points').removesuffix(' %')} to {high}"
    if not difference.is_clear:
        why = f"below {100 * difference.least:g} %" if difference.is_negligible else "may be chance"
        return Change(_signed(figure, change), f"{why}: {interval}", None)
    return Change(_signed(figure, change), interval, (change > difference.neutral) == figure.more_is_better)


def _signed(figure: _Figure, change: float) -> str:
    """Return a change with its sign: points of a share, per cent of anything else."""
    percent = 100 * change if figure.is_share else 100 * (change - 1)
    digits = 1 if abs(percent) < 100 else 0
    return f"{percent:+,.{digits}f}".replace("-", "−") + (" points" if figure.is_share else " %")
