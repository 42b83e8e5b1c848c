"""The certainty of a run's main figures: the groups of its summary, and the one printed form of a figure.

A figure has two intervals where they exist: of the requests (95 %, other requests of the same kind at other
times) and of the model (90 %, the stated errors of step times, capacity and links together).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kvcache_sim.base.units import format_time_ms, significant
from kvcache_sim.metrics.figure import Figure

FIGURES = (
    Figure("step_times.source", "", "sources of the step times, in words; instant runs have no such group"),
    Figure(
        "step_times.error_percent", "%", "largest stated error of a step; null where a source states none"
    ),
    Figure("step_times.error_from", "", "origin of the stated error"),
    Figure("step_times.factor_low", "", "least ratio of a true step time to the simulated one, as stated"),
    Figure("step_times.factor_high", "", "largest ratio of a true step time to the simulated one, as stated"),
    Figure("certainty.<figure>.model_low", "", "least of the run and its replays at the bounds of the model"),
    Figure("certainty.<figure>.model_high", "", "largest of the run and these replays; null without errors"),
    Figure("certainty.<figure>.requests_low", "", "lower end of the 95 % interval over requests"),
    Figure("certainty.<figure>.requests_high", "", "upper end of it; null for too few requests"),
    Figure(
        "certainty.<figure>.slow", "", "the figure of the replay at the slow bound: 'compare' takes ratios"
    ),
    Figure("certainty.<figure>.fast", "", "the figure of the replay at the fast bound"),
)


class CertainFigure(NamedTuple):
    """A figure with intervals: its number in the summary, and its words in print."""

    metric: str
    words: str


RATE = "output_tokens_per_s"
#: Words of a source whose GPU or engine was not measured.
NOT_MEASURED = "not measured on"
#: Figures with intervals, by their key in ``certainty``.
CERTAIN: dict[str, CertainFigure] = {
    "ttft_mean": CertainFigure("latency.ttft.avg", "TTFT mean"),
    "ttft_p50": CertainFigure("latency.ttft.p50", "TTFT p50"),
    "ttft_p99": CertainFigure("latency.ttft.p99", "TTFT p99"),
    "tpot_mean": CertainFigure("latency.tpot.avg", "TPOT mean"),
    "e2e_mean": CertainFigure("latency.e2e.avg", "E2E mean"),
    RATE: CertainFigure(f"throughput.{RATE}", "output"),
}


def source_line(summary: Mapping[str, Any]) -> str:
    """Return ``step times: roofline (no measurement of H100 TP8): ×0.83–1.67``; "" where no time passes."""
    found = summary.get("step_times")
    if not found:
        return ""
    low, high = found.get("factor_low"), found.get("factor_high")
    if low is not None and high is not None:
        return f"step times: {found['source']}: ×{_factor(low)}–{_factor(high)}"
    given = found["source"].startswith("given")
    return f"step times: {found['source']}" + ("" if given else ": no error stated")


def with_source(line: str, summary: Mapping[str, Any]) -> list[str]:
    """Return a line of figures and the source of their times, first if nothing was measured."""
    source = source_line(summary)
    lines = [source, line] if NOT_MEASURED in source else [line, source]
    return [line for line in lines if line]


def source_lines_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the source lines of rows whose figures have dotted names, each line once."""
    names = ("source", "factor_low", "factor_high")
    groups = ({name: row.get(f"step_times.{name}") for name in names} for row in rows)
    return list(dict.fromkeys(source_line({"step_times": group}) for group in groups if group["source"]))


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else significant(value)


def figure_text(summary: Mapping[str, Any], figure: str) -> str:
    """Return a figure of ``CERTAIN`` in words: ``TTFT p99 1.23 s (requests ±4 %, model −23…+154 %)``.

    Intervals that the run has not are left out.
    """
    bands = intervals_text(summary, figure)
    return f"{CERTAIN[figure].words} {value_text(summary, figure)}" + (f" ({bands})" if bands else "")


def value_of(summary: Mapping[str, Any], figure: str) -> float | None:
    """Return the value of a figure of ``CERTAIN``, in ms or 1/s; None where nothing was measured."""
    from kvcache_sim.metrics.names import metric_value  # a run alone needs no names

    return metric_value(summary, CERTAIN[figure].metric)


def value_text(summary: Mapping[str, Any], figure: str) -> str:
    """Return the value of a figure of ``CERTAIN`` with its unit; ``none`` where nothing was measured."""
    value = value_of(summary, figure)
    if value is None:
        return "none"
    return f"{significant(value)} tokens/s" if figure == RATE else format_time_ms(value)


def intervals_text(summary: Mapping[str, Any], figure: str) -> str:
    """Return the intervals of a figure: ``requests ±4 %, model −23…+154 %``; "" where it has none."""
    ends = (summary.get("certainty") or {}).get(figure)
    value = value_of(summary, figure)
    if not ends or not value:
        return ""
    pairs = ((kind, ends[f"{kind}_low"], ends[f"{kind}_high"]) for kind in ("requests", "model"))
    return ", ".join(
        f"{kind} {band(low / value, high / value)}"
        for kind, low, high in pairs
        if low is not None and high is not None
    )


def band(low: float, high: float) -> str:
    """Return an interval of a ratio around 1 in per cent: ``±4 %``, or ``−23…+154 %`` if lopsided."""
    below, above = 100 * (1 - low), 100 * (high - 1)
    widest = max(below, above)
    if min(below, above) >= 0.8 * widest or widest < 0.05:
        return f"±{_percent(widest)} %"
    return f"{_signed(-below)}…{_signed(above)} %"


def _signed(percent: float) -> str:
    text = _percent(abs(percent))
    return text if text == "0" else f"{'+' if percent > 0 else '−'}{text}"


def _percent(value: float) -> str:
    """Return a size in per cent in at most two digits below 100."""
    if value < 0.05:
        return "0"
    return f"{value:.1f}".removesuffix(".0") if value < 2.95 else f"{value:,.0f}"


def certainty_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return the main figures with their intervals, a line each; none where the run has no intervals."""
    found = summary.get("certainty") or {}
    return [figure_text(summary, figure) for figure in CERTAIN if figure in found]


def intervals_command(trace: str, run: str) -> str:
    """Return the command that computes the intervals of a run, from its directory if its trace is kept."""
    if trace == "-":
        return "kvsim simulate - --sensitivity, from the same input"
    return f"kvsim explain {shlex.quote(run)} --sensitivity"
