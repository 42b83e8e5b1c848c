"""A comparison in sentences and tables: "B's TTFT p99 is 1.31 times lower than A's (1.29 to 1.33)"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvcache_sim.base.units import format_time_ms, significant
from kvcache_sim.metrics.prefix_cache import LEAST_COMPARED
from kvcache_sim.report.compare.comparison import Comparison, Difference
from kvcache_sim.report.compare.samples import Statistic
from kvcache_sim.report.compare.stretches import STRETCHES
from kvcache_sim.report.picture import Table, Value


class _Amount(NamedTuple):
    """The size of a change in words, and its interval in the same unit and direction."""

    words: str
    interval: str


def sentence(comparison: Comparison, difference: Difference) -> str:
    """Return one number's difference as a sentence, with its interval."""
    words, label = difference.statistic.words, comparison.label
    if difference.change is None:
        return f"{label}'s {words} is {_with_unit(difference)}; {comparison.baseline}'s is 0."
    n = f"n = {comparison.requests:,}"
    if not difference.is_clear:
        amount = _amount(difference)
        is_nothing, least = difference.is_negligible, 100 * difference.least
        none = f"below {least:g} %" if is_nothing else "no difference beyond chance"
        return f"{words[0].upper()}{words[1:]}: {none} ({amount.words}, {amount.interval}; {n})."
    return f"{label}'s {words} is {size(comparison, difference).removesuffix(')')}; {n})."


def size(comparison: Comparison, difference: Difference) -> str:
    """Return the size of a difference: ``1.31 times lower than A's (1.29 to 1.33)``."""
    amount = _amount(difference)
    return f"{amount.words} than {comparison.baseline}'s ({amount.interval})"


def _with_unit(difference: Difference) -> str:
    unit = difference.statistic.unit
    return format_time_ms(difference.value) if unit == "ms" else f"{significant(difference.value)} tokens/s"


def _amount(difference: Difference) -> _Amount:
    """Return the size of a change with its interval: both towards the change. A factor is at least 1."""
    change, low, high = difference.change or 0.0, difference.low, difference.high
    if difference.statistic.is_share:
        ends = (low, high) if change >= 0 else (-high, -low)
        interval = " to ".join(f"{round(100 * end, 1) + 0.0:.1f}" for end in ends)
        return _Amount(f"{_points(abs(change))} points {_direction(change >= 0)}", interval)
    if change >= 1:
        return _Amount(f"{_factor(change)} times higher", f"{_factor(low)} to {_factor(high)}")
    if change <= 0:
        return _Amount("infinitely many times lower", "the value is 0")
    highest = _factor(1 / low) if low > 0 else "∞"
    return _Amount(f"{_factor(1 / change)} times lower", f"{_factor(1 / high)} to {highest}")


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 100 else significant(value)


def _points(share: float) -> str:
    """Return points of a share: one decimal, or one digit where that would read 0.0."""
    return f"{100 * share:.1f}" if share >= 0.0005 else f"{100 * share:.1g}"


def _direction(is_up: bool) -> str:
    return "higher" if is_up else "lower"


def sentences(comparison: Comparison) -> list[str]:
    """Return the sentences of a comparison, the main figures first; none on what does not rank the runs."""
    nothing = no_comparison(comparison)
    if nothing:
        return [nothing]
    return [sentence(comparison, d) for d in comparison.differences if comparison.ranks(d.statistic)]


def no_comparison(comparison: Comparison) -> str:
    """Return the reason for which there is nothing to compare; empty if there is."""
    label, baseline = comparison.label, comparison.baseline
    if comparison.identical:
        return (
            f"{label} and {baseline} are identical, request by request: the settings that differ have no "
            "effect."
        )
    if not comparison.differences:
        return f"No request finished in both {label} and {baseline}."
    if comparison.requests < LEAST_COMPARED:
        count = f"{comparison.requests:,} request{'s' * (comparison.requests != 1)}"
        return (
            f"Too few requests to compare {label} and {baseline}: {count}, at least {LEAST_COMPARED} needed."
        )
    return ""


def how_paired(comparison: Comparison) -> str:
    """Return the sentence on the method of the interval."""
    smallest = next((one.least for one in comparison.differences), 0.0)
    least = f" Differences below {100 * smallest:g} % decide nothing (--smallest)." if smallest else ""
    if comparison.paired_by == "replication":
        return (
            f"Intervals are of 95 %, over {comparison.replications:,} replications with common random "
            f"numbers (bootstrap).{least}"
        )
    paired = comparison.paired_by == "request"
    pairing = "paired by request" if paired else "not paired: the traces differ"
    return (
        f"Intervals are of {95 if paired else 99} %, over {comparison.requests:,} requests in {STRETCHES} "
        f"stretches of time, {pairing}. They do not cover other seeds: use --repeats for that.{least}"
    )


def settings_table(comparison: Comparison) -> Table:
    """Return the settings that differ."""
    rows = tuple((name, *(shown(v) for v in values)) for name, values in comparison.settings.items())
    return Table(("setting", comparison.baseline, comparison.label), rows)


#: Sections in which a setting is named first; those of channels mostly follow from tiers.
_FIRST = ("tiers", "replica", "cluster", "pools", "router", "cache", "model", "write", "workload", "trace")
_NAMED = 3
#: Characters of a value in that line.
_LONGEST = 30


def settings_line(comparison: Comparison) -> str:
    """Return the number of settings that differ, and the values of the most relevant ones."""
    count = len(comparison.settings)
    if not count:
        return "No setting differs."

    def order(name: str) -> int:
        section = name.partition(".")[0]
        return _FIRST.index(section) if section in _FIRST else len(_FIRST) + (section == "channels")

    named = sorted(comparison.settings, key=order)[:_NAMED]
    said = "; ".join(f"{name} {_brief(comparison.settings[name])}" for name in named)
    more = "; … (--settings shows all)" if count > _NAMED else ""
    return f"{count:,} setting{'s' * (count != 1)} differ{'s' * (count == 1)}: {said}{more}."


def _brief(values: Iterable[object]) -> str:
    """Return a setting's values, long ones cut: at their end, or at a beginning that they share."""
    texts = [shown(value) for value in values]
    begins_alike = len({text[: _LONGEST // 2] for text in texts}) == 1

    def brief(text: str) -> str:
        cut = f"…{text[1 - _LONGEST :]}" if begins_alike else f"{text[: _LONGEST - 1]}…"
        return text if len(text) <= _LONGEST else cut

    return " → ".join(map(brief, texts))


def numbers_table(comparison: Comparison) -> Table:
    """Return the numbers compared."""
    rows: list[tuple[Value, ...]] = []
    for d in comparison.differences:
        unit = d.statistic.unit
        change = None if d.change is None else round(d.change, 4)
        kind = "difference" if d.statistic.is_share else "ratio"
        rows.append(
            (
                d.statistic.metric,
                unit,
                round(d.baseline, 4),
                round(d.value, 4),
                kind,
                change,
                round(d.low, 4),
                round(d.high, 4),
            )
        )
    headings = ("number", "unit", comparison.baseline, comparison.label, "change as", "change", "low", "high")
    return Table(headings, tuple(rows))


def terminal_table(comparison: Comparison) -> Table:
    """Return the numbers compared in 80 columns: × before a ratio, the interval in one column."""
    rows = []
    for d in comparison.differences:
        share = d.statistic.is_share
        shown = [
            f"{v:+.4f}" if share else f"×{_ratio(v)}" for v in (d.change, d.low, d.high) if v is not None
        ]
        change, interval = (shown[0], " to ".join(shown[1:])) if d.change is not None else ("–", "–")
        if not comparison.ranks(d.statistic):
            change, interval = "–", "saturated: not ranked"
        unit = d.statistic.unit
        values = (_cell(value, unit) for value in (d.baseline, d.value))
        rows.append((d.statistic.metric.removeprefix("throughput."), unit, *values, change, interval))
    headings = ("number", "unit", comparison.baseline, comparison.label, "change", "interval")
    return Table(headings, tuple(rows))


def ratio_interval(statistic: Statistic, low: float, high: float) -> str:
    """Return an interval of a change: ``×0.46–0.65``, or ``+1.2…+3.4 points`` of a share."""
    if statistic.is_share:
        return f"{100 * low:+.2g}…{100 * high:+.2g} points"
    return f"×{_three(low)}–{_three(high)}"


def _three(value: float) -> str:
    return f"{value:.3f}" if value < 1 else significant(value)


def _cell(value: float, unit: str) -> str:
    """Return a number; a time with its unit from 100 s on."""
    is_long = unit == "ms" and value >= 99_999.5
    return format_time_ms(value) if is_long else significant(value)


def _ratio(value: float) -> str:
    """Return a ratio: four digits around 1, where three would hide a change."""
    return f"{value:.4g}" if value < 10 else significant(value)


def shown(value: object) -> str:
    """Return a setting's value in text; a dash if it is not set."""
    return "–" if value is None else str(value)
