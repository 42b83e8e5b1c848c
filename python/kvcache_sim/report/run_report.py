"""The report of finished runs: what stands in it, in which order."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kvcache_sim.report.compare.comparison import compare
from kvcache_sim.report.compare.text import how_paired
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.sentences import explain
from kvcache_sim.report.explain.worst import worst_table
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.headline import headlines
from kvcache_sim.report.opening import opening
from kvcache_sim.report.page import build_page
from kvcache_sim.report.parts import Asked, Disclosure, Part, Section, Sentences, TextSection
from kvcache_sim.report.pictures import PICTURES
from kvcache_sim.report.render import draw
from kvcache_sim.report.scalars import scalars_table
from kvcache_sim.report.trace_of import find_trace
from kvcache_sim.scenario.subject import subject_line

_WORST = 10
_WORST_DEFINITION = (
    "The requests that waited longest for their first token. Times the median: TTFT over the run's median. "
    "Most of it: the part of TTFT that exceeds its own median by most. 'kvsim explain RUN --request ID' "
    "tells one request's story, '--worst N --between T1 T2' those of a stretch of time."
)


def report_page(runs: Sequence[FinishedRun]) -> str:
    """Return the HTML report of one run, or of several side by side. Cost: seconds, mostly the charts."""
    warnings = [f"{run.label}: {text}" for run in runs for text in run.manifest.get("warnings", [])]
    for run in runs:
        find_trace(run)  # the pictures that need it say so where it is gone
    cases = [Case(run) for run in runs]
    comparisons = [compare([runs[0]], [run]) for run in runs[1:]]
    title = "kvsim report: " + ", ".join(run.label for run in runs)
    sides = {
        case.run.label: {topic: tuple(said.values()) for topic, said in explain(case).items()}
        for case in cases
    }
    parts: list[Part] = [Sentences("Why it came out so", sides)]
    for kind, row in PICTURES.items():
        parts.append(Asked(row.question, draw(kind, runs)))
        if kind == "queue":
            parts.append(
                Section("Which requests waited longest?", _WORST_DEFINITION, worst_table(runs, _WORST))
            )
    figures = scalars_table(runs)
    parts.append(Disclosure("What does each number mean?", f"all {len(figures.rows)} figures", figures))
    for run in runs:
        parts.append(TextSection(f"Scenario of {run.label}, resolved", run.scenario_text))
        manifest = json.dumps(run.manifest, indent=2, sort_keys=True, ensure_ascii=False)
        parts.append(TextSection(f"Manifest of {run.label}", manifest))
    subjects = [subject_line(run.scenario, len(run.requests["request"])) for run in runs]
    note = f"Changes are from {runs[0].label}. {how_paired(comparisons[0])}" if comparisons else ""
    opens = opening([run.label for run in runs], subjects, headlines(cases, comparisons), note)
    return build_page(title, warnings, parts, opens)
