"""A comparison in sentences and tables: "B's TTFT p99 is 1.31 ± 0.02 times lower than A's"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvcache_sim.metrics.prefix_cache import LEAST_COMPARED
from kvcache_sim.report.compare.comparison import Comparison, Difference
from kvcache_sim.report.picture import Table, Value
from kvcache_sim.units import format_time_ms, significant


def sentence(comparison: Comparison, difference: Difference) -> str:
    """Return one number's difference as a sentence, with its 95 % interval as ±."""
    words = difference.statistic.words
    label, baseline = comparison.label, comparison.baseline
    if difference.change is None:
        return f"{label}'s {words} is {format_time_ms(difference.value)}; {baseline}'s is 0."
    amount, is_up = _amount(difference)
    n = f"; n = {comparison.requests:,}"
    if not difference.is_clear:
        return (
            f"{words[0].upper()}{words[1:]}: no difference beyond chance ({amount} {_direction(is_up)}{n})."
        )
    return f"{label}'s {words} is {amount} {_direction(is_up)} than {baseline}'s{_of(comparison)}."


def _of(comparison: Comparison) -> str:
    return f" (n = {comparison.requests:,})"


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
    """Return the sentences of a comparison, the main figures first."""
    label, baseline = comparison.label, comparison.baseline
    if comparison.identical:
        return [
            f"{label} and {baseline} are identical, request by request: the settings that differ have no "
            "effect."
        ]
    if not comparison.differences:
        return [f"No request finished in both {label} and {baseline}."]
    if comparison.requests < LEAST_COMPARED:
        count = f"{comparison.requests:,} request{'s' * (comparison.requests != 1)}"
        return [
            f"Too few requests to compare {label} and {baseline}: {count}, at least {LEAST_COMPARED} needed."
        ]
    return [sentence(comparison, difference) for difference in comparison.differences]


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
    rows = tuple((name, *(_shown(v) for v in values)) for name, values in comparison.settings.items())
    return Table(("setting", comparison.baseline, comparison.label), rows)


def numbers_table(comparison: Comparison) -> Table:
    """Return the numbers compared."""
    rows: list[tuple[Value, ...]] = []
    for d in comparison.differences:
        unit = "share" if d.statistic.is_share else "ms"
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
        unit = "share" if share else "ms"
        values = (_cell(value, share) for value in (d.baseline, d.value))
        rows.append((d.statistic.metric, unit, *values, change, interval))
    headings = ("number", "unit", comparison.baseline, comparison.label, "change", "95 % interval")
    return Table(headings, tuple(rows))


def _cell(value: float, is_share: bool) -> str:
    """Return a share, or a time in ms, with its unit from 100 s on."""
    is_long = not is_share and value >= 99_999.5
    return format_time_ms(value) if is_long else significant(value)


def _ratio(value: float) -> str:
    """Return a ratio: four digits around 1, where three would hide a change."""
    return f"{value:.4g}" if value < 10 else significant(value)


def _shown(value: object) -> str:
    return "–" if value is None else str(value)


def as_json(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return comparisons as plain values for JSON."""
    return [
        {
            "baseline": c.baseline,
            "run": c.label,
            "settings": {name: [_shown(v) for v in values] for name, values in c.settings.items()},
            "paired_by": c.paired_by,
            "requests": c.requests,
            "replications": c.replications,
            "identical": c.identical,
            "numbers": {
                d.statistic.metric: {
                    "baseline": d.baseline,
                    "value": d.value,
                    "change": d.change,
                    "change_as": "difference" if d.statistic.is_share else "ratio",
                    "low": d.low,
                    "high": d.high,
                }
                for d in c.differences
            },
            "sentences": sentences(c),
        }
        for c in comparisons
    ]
