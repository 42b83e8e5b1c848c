"""The sources of two runs' step times, and their figures with intervals, in the one printed form."""

from __future__ import annotations

from typing import NamedTuple

from kvcache_sim.metrics.certainty import CERTAIN, intervals_text, source_line, value_text
from kvcache_sim.report.finished import FinishedRun


class Certainties(NamedTuple):
    """The certainty of two runs in words."""

    #: The source of the step times, once if both runs share it.
    sources: tuple[str, ...]
    #: Metric → the figure of both runs with their intervals, of figures that have intervals.
    values: dict[str, str]


def certainties(first: FinishedRun, second: FinishedRun) -> Certainties:
    """Return the sources and figures of two runs."""
    lines = [source_line(run.summary) for run in (first, second)]
    said = [f"{line}." for line in lines[:1] if line]
    if lines[0] != lines[1]:
        said = [
            f"{run.label}: {line or 'no time passes'}."
            for run, line in zip((first, second), lines, strict=True)
        ]
    values = {}
    for key, (metric, words) in CERTAIN.items():
        bands = [intervals_text(run.summary, key) for run in (first, second)]
        if all(bands):
            own = [
                f"{run.label} {value_text(run.summary, key)} ({band})"
                for run, band in zip((first, second), bands, strict=True)
            ]
            values[metric] = f"{words}: {', '.join(own)}."
    return Certainties(tuple(said), values)
