"""Every number of ``summary.json`` with its unit and definition, a column a run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvcache_sim.metrics.figure import Figure
from kvcache_sim.metrics.figures import FIGURES
from kvcache_sim.metrics.names import flatten
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import Table, Value


def scalars_table(runs: Sequence[FinishedRun]) -> Table:
    """Return a row a number of ``summary.json``, a column a run, then unit and definition."""
    flat = [flatten(run.summary) for run in runs]
    names = list(dict.fromkeys(name for summary in flat for name in summary))
    rows = []
    for name in names:
        leaves = [summary.get(name) for summary in flat]
        if name.startswith("definitions.") or any(isinstance(leaf, list) for leaf in leaves):
            continue
        values = [_value(leaf) for leaf in leaves]
        if any(value is not None for value in values):
            figure = figure_of(name)
            unit, meaning = (figure.unit, figure.meaning) if figure else ("", "")
            rows.append((name, *values, unit, meaning))
    return Table(("number", *(run.label for run in runs), "unit", "definition"), tuple(rows))


def figure_of(name: str) -> Figure | None:
    """Return the figure, or the family of figures, that a dotted name of the summary belongs to."""
    for figure, pattern in _PATTERNS:
        if pattern.fullmatch(name):
            return figure
    return None


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<\w+>", ".+", re.escape(name)))


_PATTERNS = [(figure, _pattern(figure.name)) for figure in FIGURES]


def _value(leaf: object) -> Value:
    if isinstance(leaf, float):
        return round(leaf, 6)
    if isinstance(leaf, bool) or not isinstance(leaf, (int, str)):
        return None if leaf is None else str(leaf)
    return leaf
