"""A run in one line, and in the few figures that answer first."""

from __future__ import annotations

from typing import Any

from kvcache_sim.api.html import html_line, html_list, html_page, html_table
from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import Table
from kvcache_sim.scenario.subject import subject_line

#: What is shown first: the words, the figure, and how it reads.
_SHOWN = (
    ("hit rate (of prompt tokens)", "cache.token_hit_rate", "{:.2%}"),
    ("TTFT p50", "latency.ttft.p50", "{:,.4g} ms"),
    ("TTFT p99", "latency.ttft.p99", "{:,.4g} ms"),
    ("TPOT mean", "latency.tpot.avg", "{:,.4g} ms"),
    ("output tokens a second", "throughput.output_tokens_per_s", "{:,.1f}"),
    ("SLO attainment", "slo.attainment", "{:.2%}"),
    ("goodput, requests a second", "goodput.requests_per_s", "{:,.4g}"),
    ("cost of a million tokens", "cost.per_million_tokens", "{:,.4g}"),
)


def figures_of(summary: dict[str, Any]) -> dict[str, str]:
    """Return the first figures of a summary in words, those it has none of left out."""
    values = {words: (metric_value(summary, name), form) for words, name, form in _SHOWN}
    return {words: form.format(value) for words, (value, form) in values.items() if value is not None}


def headline_text(run: FinishedRun) -> str:
    """Return a run in one line."""
    requests = run.summary["requests"]
    counted = f"{requests['finished']:,} of {requests['arrived']:,} requests finished"
    return "; ".join([f"{run.label}: {counted}", *(f"{k} {v}" for k, v in figures_of(run.summary).items())])


def headline_html(run: FinishedRun) -> str:
    """Return what a notebook shows of a run."""
    requests = run.summary["requests"]
    counted = f"{requests['finished']:,} of {requests['arrived']:,}"
    rows = [("requests finished", counted), *figures_of(run.summary).items()]
    table = Table((run.label, ""), tuple(rows))
    subject = html_line(subject_line(run.scenario, requests["arrived"]))
    return html_page(run.label, subject, html_table(table), html_list(run.manifest.get("warnings", [])))
