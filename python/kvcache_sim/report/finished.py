"""A finished run as reports read it: its tables, read once at first use, its name, and its trace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import KvsimError
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.run import CodedText, ColumnData
from kvcache_sim.scenario.load import scenario_of_run
from kvcache_sim.workload.trace import Trace


class RunSource(Protocol):
    """The source of a finished run: its directory (``StoredRun``), or memory."""

    @property
    def path(self) -> Path:
        """Return the run's directory, or the directory that its name would have."""
        ...

    @property
    def manifest(self) -> dict[str, Any]:
        """Return ``run.json``."""
        ...

    @property
    def summary(self) -> dict[str, Any]:
        """Return ``summary.json``."""
        ...

    @property
    def scenario(self) -> str:
        """Return ``scenario.yaml`` as text."""
        ...

    def requests(self) -> dict[str, ColumnData]:
        """Return the columns of ``REQUEST_COLUMNS``."""
        ...

    def series(self) -> dict[str, ColumnData]:
        """Return the columns of ``SERIES_COLUMNS``."""
        ...

    def events(self) -> dict[str, ColumnData]:
        """Return the columns of ``EVENT_COLUMNS``."""
        ...

    def prefixes(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``PREFIX_COLUMNS``; None where the run did not keep them."""
        ...

    def junctions(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``JUNCTION_COLUMNS``; None for a cache of one group."""
        ...


class FinishedRun:
    """A finished run with the figures that reports derive from it; nothing is written.

    ``label`` distinguishes it from other runs shown; ``trace`` is its trace, None if it was not found.
    """

    def __init__(self, stored: RunSource, label: str = "", trace: Trace | None = None) -> None:
        self.directory = stored.path
        self.manifest: dict[str, Any] = stored.manifest
        self.summary: dict[str, Any] = stored.summary
        self.scenario_text = stored.scenario
        self.label = label or stored.path.resolve().name
        self.trace = trace
        self._stored = stored

    @cached_property
    def requests(self) -> dict[str, NDArray[Any]]:
        """Return the columns of ``REQUEST_COLUMNS``, all of them numbers."""
        columns = self._stored.requests()
        return {name: values for name, values in columns.items() if not isinstance(values, CodedText)}

    @cached_property
    def finished(self) -> dict[str, NDArray[Any]]:
        """Return the rows of ``requests`` that finished: all that have latencies."""
        done = self.requests["status"] == 0
        return {name: values[done] for name, values in self.requests.items()}

    @cached_property
    def series(self) -> dict[str, ColumnData]:
        """Return the columns of ``SERIES_COLUMNS``."""
        return self._stored.series()

    @cached_property
    def events(self) -> dict[str, ColumnData]:
        """Return the columns of ``EVENT_COLUMNS``."""
        return self._stored.events()

    @cached_property
    def prefixes(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``PREFIX_COLUMNS``; None where the run did not keep them."""
        return self._stored.prefixes()

    @cached_property
    def junctions(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``JUNCTION_COLUMNS``; None for a cache of one group."""
        return self._stored.junctions()

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """Return the resolved scenario as plain values."""
        from kvcache_sim.scenario.yaml_tree import read_tree

        return read_tree(self.scenario_text.encode(), str(self.directory / "scenario.yaml")).values

    @property
    def block_size_tokens(self) -> int:
        """Return the tokens of one cache block."""
        return int(self.scenario.get("cache", {}).get("block_size", 512))


def text_column(column: ColumnData) -> CodedText:
    """Return a column, checked to be text."""
    assert isinstance(column, CodedText)
    return column


def number_column(column: ColumnData) -> NDArray[Any]:
    """Return a column, checked to be numbers."""
    return np.asarray(column)


def open_runs(directories: Sequence[Path]) -> list[FinishedRun]:
    """Return finished runs, labeled by their directories, with numbers where the names are equal.

    Raises what ``load_run`` raises.
    """
    runs = [FinishedRun(load_run(directory)) for directory in directories]
    labels = [run.label for run in runs]
    if len(set(labels)) < len(runs):
        for number, run in enumerate(runs, 1):
            run.label = f"{run.label} ({number})"
    return runs


def find_trace(run: FinishedRun) -> str:
    """Read the run's requests again, from its file or its generator, into ``run.trace``.

    Returns "" or the reason for which it is missing: the file is gone or has changed (by SHA-256). Cost: what
    reading the trace costs.
    """
    from kvcache_sim.scenario.requests import read_requests

    if run.trace is not None:
        return ""
    try:
        trace = read_requests(scenario_of_run(run.scenario_text, run.directory))
    except KvsimError as error:
        return str(error)
    before = run.manifest.get("trace", {}).get("sha256", "")
    if before != trace.sha256 or len(trace) != len(run.requests["request"]):
        return f"{trace.source or 'the trace'} has changed since the run"
    run.trace = trace
    return ""
