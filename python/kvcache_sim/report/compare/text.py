"""A comparison in sentences and tables: "B's TTFT p99 is 1.31 ± 0.02 times lower than A's"."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_sim.base.units import format_time_ms, significant
from kvcache_sim.metrics.prefix_cache import LEAST_COMPARED
from kvcache_sim.report.compare.comparison import Comparison, Difference
from kvcache_sim.report.compare.samples import Statistic
from kvcache_sim.report.picture import Table, Value


def sentence(comparison: Comparison, difference: Difference) -> str:
    """Return one number's difference as a sentence, with its 95 % interval as ±."""
    words, label = difference.statistic.words, comparison.label
    if difference.change is None:
        return f"{label}'s {words} is {_with_unit(difference)}; {comparison.baseline}'s is 0."
    if not difference.is_clear:
        amount, is_up = _amount(difference)
        n = f"; n = {comparison.requests:,}"
        return (
            f"{words[0].upper()}{words[1:]}: no difference beyond chance ({amount} {_direction(is_up)}{n})."
        )
    return f"{label}'s {words} is {size(comparison, difference)} (n = {comparison.requests:,})."


def size(comparison: Comparison, difference: Difference) -> str:
    """Return the size of a difference: ``1.31 ± 0.02 times lower than A's``."""
    amount, is_up = _amount(difference)
    return f"{amount} {_direction(is_up)} than {comparison.baseline}'s"


def _with_unit(difference: Difference) -> str:
    unit = difference.statistic.unit
    return format_time_ms(difference.value) if unit == "ms" else f"{significant(difference.value)} tokens/s"


def _amount(difference: Difference) -> tuple[str, bool]:
    """Return the size of a change with its ±, and True if it is an increase. A factor is at least 1."""
    change = difference.change or 0.0
    half = (difference.high - difference.low) / 2
    if difference.statistic.is_share:
        return f"{_points(abs(change))} ± {_points(half)} points", change > 0
    if change >= 1:
        return f"{change:.2f} ± {half:.2f} times", True
    half = (1 / difference.low - 1 / difference.high) / 2 if difference.low > 0 else float("inf")
    return f"{1 / change:.2f} ± {half:.2f} times" if change > 0 else "infinitely many times", False


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
    if comparison.paired_by == "replication":
        return (
            f"± is the 95 % interval over {comparison.replications:,} replications with common random "
            "numbers (bootstrap)."
        )
    pairing = "paired by request" if comparison.paired_by == "request" else "not paired: the traces differ"
    return (
        f"± is the 95 % interval over {comparison.requests:,} requests, {pairing} (block bootstrap in order "
        "of arrival). It does not cover other seeds: use --repeats for that."
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
    headings = ("number", "unit", comparison.baseline, comparison.label, "change", "95 % interval")
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
