"""Replays of a run's requests with other settings; nothing is written."""

from __future__ import annotations

from dataclasses import replace

from kvcache_sim.base.errors import TraceError
from kvcache_sim.scenario.execute import Execution, execute
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.requests import open_requests
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.readers.stream import TraceStream
from kvcache_sim.workload.trace import Trace


class Replays:
    """The requests of a run, to be run again; ``sha256`` is their digest, ``trace`` the requests if at hand.

    Plug-ins are constructed anew for each replay, as for the run.
    """

    def __init__(
        self, scenario: Scenario, sha256: str, options: RunOptions, trace: Trace | None = None
    ) -> None:
        self._scenario, self._sha256, self._read = scenario, sha256, trace
        self._options = RunOptions(engine=options.engine, times=options.times)

    def run(self, settings: ClusterSettings) -> Execution:
        """Run once with these settings; raises TraceError for other requests than those that ran."""
        requests = self._read or open_requests(self._scenario, self._options)
        if not isinstance(requests, TraceStream):
            self._read = requests
        done = execute(replace(self._scenario, settings=settings), requests, self._options)
        if self._sha256 != done.trace.sha256:
            raise TraceError(
                "not the trace that ran",
                where=done.trace.source,
                got=done.trace.sha256[:16],
                expected=self._sha256[:16],
            )
        return done
