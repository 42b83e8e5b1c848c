"""The report of finished runs: what stands in it, in which order."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kvcache_sim.metrics.names import STABLE_METRICS, flatten
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.page import Part, Section, TextSection, build_page
from kvcache_sim.report.picture import Table, Value
from kvcache_sim.report.pictures import PICTURES
from kvcache_sim.report.render import draw
from kvcache_sim.report.trace_of import find_trace

_SUMMARY = (
    "Latencies in ms: TTFT = first token − arrival; TPOT = (last − first token) ÷ (output tokens − 1); ITL = "
    "time between tokens; E2E = last token − arrival; percentiles interpolate between ranks. Hit rates count "
    "the first admission of a request only: token_hit_rate = tokens served from any tier ÷ prompt tokens; "
    "block_hit_rate = blocks served ÷ full blocks asked for; request_hit_rate = mean over requests of the "
    "share served."
)


def report_page(runs: Sequence[FinishedRun]) -> str:
    """Return the HTML report of one run, or of several side by side. Cost: seconds, mostly the charts."""
    warnings = [f"{run.label}: {text}" for run in runs for text in run.manifest.get("warnings", [])]
    for run in runs:
        find_trace(run)  # the pictures that need it say so where it is gone
    title = "kvsim report: " + ", ".join(run.label for run in runs)
    parts: list[Part] = [Section("Summary", _SUMMARY, summary_table(runs))]
    parts += [draw(kind, runs) for kind in PICTURES]
    for run in runs:
        parts.append(TextSection(f"Scenario of {run.label}, resolved", run.scenario_text))
        manifest = json.dumps(run.manifest, indent=2, sort_keys=True, ensure_ascii=False)
        parts.append(TextSection(f"Manifest of {run.label}", manifest))
    return build_page(title, warnings, parts)


def summary_table(runs: Sequence[FinishedRun]) -> Table:
    """Return a row a number of ``summary.json``, a column a run."""
    flat = [flatten(run.summary) for run in runs]
    names = list(dict.fromkeys(name for summary in flat for name in summary))
    rows = []
    for name in names:
        values = [_value(summary.get(name)) for summary in flat]
        if any(value is not None for value in values) and not isinstance(flat[0].get(name), list):
            rows.append((name, *values, STABLE_METRICS.get(name, "")))
    return Table(("number", *(run.label for run in runs), "unit"), tuple(rows))


def _value(leaf: object) -> Value:
    if isinstance(leaf, float):
        return round(leaf, 6)
    if isinstance(leaf, bool) or not isinstance(leaf, (int, str)):
        return None if leaf is None else str(leaf)
    return leaf
