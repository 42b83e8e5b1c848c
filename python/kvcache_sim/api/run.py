"""A finished run in Python: its tables, its first figures, and the run directory it is saved as."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from kvcache_sim.api.arrow import arrow_table, with_words
from kvcache_sim.api.calls import public
from kvcache_sim.api.html import html_line, html_list, html_page, html_table
from kvcache_sim.api.plot import Plot, draw_plot
from kvcache_sim.api.scenario import Scenario
from kvcache_sim.api.unsaved import UnsavedRun
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import format_percent, format_time_ms, significant
from kvcache_sim.metrics import load_run as stored
from kvcache_sim.metrics.certainty import CERTAIN, intervals_text, source_line, with_source
from kvcache_sim.metrics.columns import (
    EVENT_COLUMNS,
    MISS_COLUMNS,
    OUTCOMES,
    REQUEST_COLUMNS,
    SERIES_COLUMNS,
    SLO_COLUMNS,
    STATUSES,
)
from kvcache_sim.metrics.names import metric_value
from kvcache_sim.metrics.run_directory import RunDirectory, open_run_directory
from kvcache_sim.policies.plugins.permission import names_only
from kvcache_sim.report.finished import FinishedRun, RunSource
from kvcache_sim.report.picture import Table
from kvcache_sim.report.run_report import write_report
from kvcache_sim.scenario.execute import Execution, store
from kvcache_sim.scenario.subject import subject_line
from kvcache_sim.workload.toolbox.write import mooncake_lines
from kvcache_sim.workload.trace import Trace

#: Headline figures: the words, the figure, and its format.
_SHOWN: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("hit rate (of prompt tokens)", "cache.token_hit_rate", format_percent),
    ("TTFT p50", "latency.ttft.p50", format_time_ms),
    ("TTFT p99", "latency.ttft.p99", format_time_ms),
    ("TPOT mean", "latency.tpot.avg", format_time_ms),
    ("output tokens a second", "throughput.output_tokens_per_s", significant),
    ("SLO attainment", "slo.attainment", format_percent),
    ("goodput, requests a second", "goodput.requests_per_s", significant),
    ("cost of a million output tokens", "cost.per_million_output_tokens", significant),
)


def figures_of(summary: dict[str, Any]) -> dict[str, str]:
    """Return the headline figures that a summary has, as text with their intervals."""
    certain = {
        certain_figure.metric: intervals_text(summary, name) for name, certain_figure in CERTAIN.items()
    }
    values = [(words, metric_value(summary, name), shown, certain.get(name)) for words, name, shown in _SHOWN]
    return {
        words: f"{shown(value)} ({ends})" if ends else shown(value)
        for words, value, shown, ends in values
        if value is not None
    }


def headline_text(run: FinishedRun) -> str:
    """Return a run in one line, and the source of its step times in another."""
    requests = run.summary["requests"]
    counted = f"{requests['finished']:,} of {requests['arrived']:,} requests finished"
    figures = "; ".join(
        [f"{run.label}: {counted}", *(f"{k} {v}" for k, v in figures_of(run.summary).items())]
    )
    return "\n  ".join(with_source(figures, run.summary))


def headline_html(run: FinishedRun) -> str:
    """Return a run as HTML for notebooks."""
    requests = run.summary["requests"]
    counted = f"{requests['finished']:,} of {requests['arrived']:,}"
    rows = [("requests finished", counted), *figures_of(run.summary).items()]
    table = Table((run.label, ""), tuple(rows))
    above = [subject_line(run.scenario, requests["arrived"]), source_line(run.summary)]
    subject = "".join(html_line(line) for line in above if line)
    return html_page(run.label, subject, html_table(table), html_list(run.manifest.get("warnings", [])))


_REQUESTS = "trace.jsonl"


def save_run(source: RunSource, target: Path, force: bool) -> Path:
    """Write a run that is in memory; raises UsageError for one that has a directory already."""
    if not isinstance(source, UnsavedRun):
        raise UsageError("is a directory already", where=str(source.path), hint="copy it")
    with open_run_directory(target, force) as directory:
        execution = source.execution
        if source.given is not None:
            execution = _with_requests(execution, source.given, directory)
        store(execution, directory, ["kvcache_sim.simulate"], source.summary["wall"])
    return target


def _with_requests(execution: Execution, given: Trace, directory: RunDirectory) -> Execution:
    """Write the requests into the run's directory, and return the run as one of that file."""
    text = "".join(mooncake_lines(given)).encode()
    directory.write(_REQUESTS, text)
    section = {"path": _REQUESTS, "format": "mooncake", "block_size": given.block_size, "time_order": "keep"}
    scenario = replace(execution.scenario, resolved={**execution.scenario.resolved, "trace": section})
    trace = replace(execution.trace, sha256=hashlib.sha256(text).hexdigest(), source=_REQUESTS)
    return replace(execution, scenario=scenario, trace=trace)


TableName = Literal["requests", "series", "events"]


class Run:
    """A finished run: its figures, its tables, its pictures.

    ``simulate`` returns a run, ``load_run`` reads it from a directory. A notebook shows its headline figures.
    Columns that end in ``_ns`` are in nanoseconds, latencies of ``summary`` in milliseconds.

    Attributes:
        name: Label: the directory's name, or the scenario's.
        summary: Figures by nested name, the JSON of ``kvsim simulate --format json``.
        scenario: The ``Scenario`` with every default filled in.
        requests: ``pyarrow.Table`` of a row a request: times in ns, lengths in tokens.
        series: ``pyarrow.Table`` of samples over time: ``time_ns``, ``machine``, ``name``, ``value``.
        events: ``pyarrow.Table`` of steps, transfers and evictions in order of time; empty unless recorded.
        warnings: Remarks on the scenario, its requests and the run, one text each.
        digests: Digests of ``events`` and ``results``, 96 bits each in hexadecimal; equal runs have equal
            ones.
        finished: The run as reports read it.
    """

    def __init__(self, source: RunSource, label: str = "", trace: Trace | None = None) -> None:
        self._source = source
        self.finished = FinishedRun(source, label, trace)

    @property
    def name(self) -> str:
        """Return its label: its directory's name, or its scenario's."""
        return self.finished.label

    @property
    def summary(self) -> dict[str, Any]:
        """Return the figures of ``kvsim simulate --format json``, as ``kvsim help metrics`` defines them."""
        return self.finished.summary

    @cached_property
    def scenario(self) -> Scenario:
        """Return the scenario with every default filled in."""
        with names_only():  # a finished run is data
            return Scenario.from_yaml(self.finished.scenario_text)

    @property
    def warnings(self) -> list[str]:
        """Return the remarks on the scenario, its requests and the run."""
        return list(self.finished.manifest.get("warnings", []))

    @property
    def digests(self) -> dict[str, str]:
        """Return the digests of the run's ``events`` and ``results``; equal runs have equal digests."""
        return dict(self.summary["digest"])

    @cached_property
    def requests(self) -> Any:
        """Return a ``pyarrow.Table`` of a row a request, the columns of ``requests.parquet``."""
        return arrow_table(self._source.requests(), {**REQUEST_COLUMNS, **SLO_COLUMNS, **MISS_COLUMNS})

    @cached_property
    def series(self) -> Any:
        """Return a ``pyarrow.Table`` of samples over time: ``time_ns``, ``machine``, ``name``, ``value``."""
        return arrow_table(self._source.series(), SERIES_COLUMNS)

    @cached_property
    def events(self) -> Any:
        """Return a ``pyarrow.Table`` of events in order of time."""
        return arrow_table(self._source.events(), EVENT_COLUMNS)

    @public
    def to_pandas(self, table: TableName = "requests") -> Any:
        """Return a table as a pandas data frame, status and outcome as words; needs pandas.

        Args:
            table: ``requests``, ``series`` or ``events``.

        Raises:
            UsageError: There is no such table.
        """
        return self._in_words(table).to_pandas()

    @public
    def to_polars(self, table: TableName = "requests") -> Any:
        """Return a table as a polars data frame, status and outcome as words.

        Args:
            table: ``requests``, ``series`` or ``events``.

        Raises:
            UsageError: There is no such table, or polars is not installed.
        """
        try:
            import polars
        except ImportError:
            raise UsageError("no polars here", where="to_polars", hint="pip install polars") from None
        return polars.from_arrow(self._in_words(table))

    def _in_words(self, table: TableName) -> Any:
        if table not in ("requests", "series", "events"):
            raise UsageError("no such table", got=repr(table), expected="requests, series or events")
        return with_words(getattr(self, table), {"status": STATUSES, "outcome": OUTCOMES})

    def labelled(self, label: str) -> FinishedRun:
        """Return the run as reports read it, under another label.

        Args:
            label: Name of the run in tables and pictures.
        """
        return FinishedRun(self._source, label, self.finished.trace)

    @public
    def plot(self, kind: str) -> Plot:
        """Draw a picture of the run.

        Args:
            kind: ``ttft_waterfall``, ``hit_curve``, … (``kvsim plot`` lists them).

        Raises:
            UsageError: The kind is unknown, or the extra ``report`` is not installed.
        """
        return draw_plot(kind, [self.finished])

    @public
    def report(self, path: str | os.PathLike[str] = "report.html", force: bool = False) -> Path:
        """Write the page of the run, as ``kvsim report`` does; needs the extra ``report``.

        Args:
            path: File to write.
            force: Replace an existing file.

        Raises:
            OutputExistsError: The file exists and ``force`` is not set.
        """
        return write_report([self.finished], Path(path), force)

    @public
    def save(self, directory: str | os.PathLike[str], force: bool = False) -> Path:
        """Write the run as a directory that every verb of ``kvsim`` takes.

        Requests that came from Python are written into it as ``trace.jsonl``.

        Args:
            directory: New directory.
            force: Replace a finished run in the directory.

        Returns:
            The path of the directory.

        Raises:
            UsageError: The run has a directory already.
            OutputExistsError: The directory exists, and is no finished run or ``force`` is not set.
            InputOutputError: The directory cannot be written.
        """
        return save_run(self._source, Path(directory), force)

    def _repr_html_(self) -> str:
        return headline_html(self.finished)

    def __repr__(self) -> str:
        noted = self.warnings
        counted = "1 warning" if len(noted) == 1 else f"{len(noted)} warnings, the first"
        first = f"\n  {counted}: {noted[0]}" if noted else ""
        return f"<Run {headline_text(self.finished)}{first}>"


@public
def load_run(directory: str | os.PathLike[str]) -> Run:
    """Read a run that ``Run.save`` or ``kvsim simulate`` wrote; its files are checked.

    Args:
        directory: Run directory.

    Returns:
        The finished run.

    Raises:
        UsageError: The directory holds no finished run.
        InputOutputError: A file of the run was changed.
    """
    return Run(stored.load_run(Path(directory)))
