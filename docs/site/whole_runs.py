"""The page of whole measured runs: coverage of the stated intervals, then every run with its simulations."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

from kvcache_sim.extras.calibrate.coverage import LEAST_HELD, MOST_RATIO, Cell, cells, judged
from kvcache_sim.model.run_errors import MeasuredRun, measured_runs

_INTRO = f"""# Measured errors: whole runs and stated intervals

Appendix to [how far to trust it](../understand/trust.md): every whole run that was measured and simulated,
and how often the intervals that they state hold the truth (`kvsim calibrate coverage`). The data are
`kvcache_sim/model/data/run_errors.toml`; no row is left out.

A run is near capacity if half of its simulated mean TTFT or more is queueing. Half-widths and errors are
medians over the true value. Bold: fewer than {LEAST_HELD:.0%} held, or half-widths above {MOST_RATIO:g}.
"""
_COVERAGE = (
    "source",
    "model",
    "engine",
    "load",
    "figure",
    "figures",
    "held",
    "half-width, %",
    "error, %",
    "ratio",
)


def whole_runs_page() -> str:
    """Return the page in Markdown."""
    runs = measured_runs()
    parts = [_INTRO]
    for by, title in (("run", "Each run left out"), ("deployment", "Each deployment left out")):
        found = cells(judged(runs, by))
        parts.append(f"## {title}\n\n{_table(_COVERAGE, [_coverage_row(one) for one in found])}")
    given = tomllib.loads((files("kvcache_sim") / "model/data/run_errors.toml").read_text(encoding="utf-8"))
    for name, group in given.items():
        if name != "factors":
            parts.append(_group(group, [run for run in runs if run.group == name]))
    return "\n".join(parts)


def _coverage_row(one: Cell) -> list[str]:
    mark = "" if one.meets_goal else "**"
    figures = (f"{100 * one.half_width:.1f}", f"{100 * one.error:.1f}", f"{mark}{one.ratio:.1f}{mark}")
    kind = (one.source, one.family, one.engine, one.load, one.figure or "all")
    return [*kind, str(one.count), f"{mark}{one.held:.0%}{mark}", *figures]


def _group(group: dict[str, Any], runs: list[MeasuredRun]) -> str:
    names = [f"{figure}, measured / simulated" for figure in group["figures"]]
    headings = ("source", "model", "engine", "deployment", "run", "queueing", *names)
    rows = [_run_row(run, group["figures"]) for run in runs]
    source = f"*Source: {group['origin']} ({group['licence']}). {group['about']}*"
    return f"## {group['title']}\n\n{_table(headings, rows)}\n{source}\n"


def _run_row(run: MeasuredRun, figures: list[str]) -> list[str]:
    values = [" / ".join(f"{value:g}" for value in run.values.get(figure, ())) for figure in figures]
    queue = "" if run.queue is None else f"{run.queue:.0%}"
    return [run.kind.source, run.kind.family, run.kind.engine, run.deployment, run.run, queue, *values]


def _table(headings: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])
