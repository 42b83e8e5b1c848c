"""The certainty of a run's main figures, as the run stored it."""

from __future__ import annotations

from kvcache_sim.metrics.certainty import CERTAIN, figure_text, intervals_command, source_line
from kvcache_sim.report.finished import FinishedRun

TOPIC = "The main figures and how certain they are"


def certain_figures(run: FinishedRun) -> dict[str, dict[str, str]]:
    """Return the topic with the source of the step times and each figure; {} where no time passes."""
    if not run.summary.get("step_times"):
        return {}
    stored = run.summary.get("certainty") or {}
    figures = {name.replace("_", "-"): figure_text(run.summary, name) for name in CERTAIN if name in stored}
    return {TOPIC: {"step-times": source_line(run.summary)} | figures}


def missing_intervals(run: FinishedRun) -> dict[str, str]:
    """Return the name and the line of the command that computes the intervals of a run without them."""
    if not run.summary.get("step_times") or run.summary.get("certainty"):
        return {}
    trace = str((run.scenario.get("trace") or {}).get("path", ""))
    return {"intervals": f"intervals: {intervals_command(trace, str(run.directory))}"}
