"""A run in memory with the contents of a run directory, for reports."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from kvcache_sim.metrics.run import ColumnData
from kvcache_sim.scenario.execute import Execution, manifest, resolved_with_trace, wall
from kvcache_sim.scenario.resolved import to_yaml
from kvcache_sim.workload.trace import Trace


class UnsavedRun:
    """A run of this process; ``given`` are its requests if they were given in Python."""

    def __init__(self, execution: Execution, given: Trace | None) -> None:
        self.execution, self.given = execution, given
        self.path = Path(execution.scenario.model.name)
        summary = {**execution.summary, "wall": wall()}
        #: The JSON of ``kvsim simulate --format json``.
        self.summary: dict[str, Any] = json.loads(json.dumps(summary, allow_nan=False))

    @property
    def resolved(self) -> dict[str, Any]:
        """Return the scenario with its defaults as plain values."""
        return resolved_with_trace(self.execution.scenario, self.execution.trace)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Return the contents of ``run.json``."""
        return manifest(self.execution, self.resolved, ["kvcache_sim.simulate"])

    @cached_property
    def scenario(self) -> str:
        """Return the contents of ``scenario.yaml``."""
        return to_yaml(self.resolved)

    def requests(self) -> dict[str, ColumnData]:
        """Return the columns of ``REQUEST_COLUMNS``."""
        return self.execution.run.requests

    def series(self) -> dict[str, ColumnData]:
        """Return the columns of ``SERIES_COLUMNS``."""
        return dict(self.execution.run.series)

    def events(self) -> dict[str, ColumnData]:
        """Return the columns of ``EVENT_COLUMNS``."""
        return dict(self.execution.run.events)

    def prefixes(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``PREFIX_COLUMNS``; None where the run did not keep them."""
        return self.execution.run.prefixes

    def junctions(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``JUNCTION_COLUMNS``; None for a cache of one group."""
        return self.execution.run.junctions
