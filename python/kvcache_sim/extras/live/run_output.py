"""The run directory of a live run: tables during the run, the rest at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvcache_sim.extras.live.arrivals import LAG_COLUMNS, ArrivalLog
from kvcache_sim.extras.live.fleet import Fleet
from kvcache_sim.metrics.run_directory import RunDirectory
from kvcache_sim.metrics.run_tables import RunTables
from kvcache_sim.scenario.execute import Execution, store, summarized
from kvcache_sim.scenario.load import Scenario, load_served
from kvcache_sim.scenario.measure import measured_requests
from kvcache_sim.simulation.live import requests_of

ARRIVALS = "arrivals.jsonl"


@dataclass(frozen=True, slots=True)
class Asked:
    """Arguments of a scenario, as typed."""

    config: Path | None
    overrides: Sequence[str]
    argv: Sequence[str]


def live_scenario(asked: Asked, target: Path | None = None) -> Scenario:
    """Return the scenario to serve; its requests are the live arrivals, kept in ``target``.

    Raises as ``load_served``.
    """
    return load_served(asked.config, asked.overrides, ((target or Path()) / ARRIVALS).absolute())


class Keeping:
    """Writes a live run into its claimed directory."""

    def __init__(self, scenario: Scenario, directory: RunDirectory, fleet: Fleet) -> None:
        self._scenario, self._directory, self._fleet = scenario, directory, fleet
        self._measured = measured_requests(scenario, None)
        self._tables = RunTables(directory, self._measured, is_live=True)
        recorder = fleet.simulation.recorder
        recorder.stream_events(self._tables.take_events)
        assert self._tables.digest is not None
        recorder.stream_rows(self._tables.take_rows, self._tables.digest)
        self.log = ArrivalLog(directory.rows(ARRIVALS), directory.table("lag", LAG_COLUMNS))
        fleet.witnesses.append(self.log)

    def end(self, argv: Sequence[str]) -> dict[str, Any]:
        """Finish the run, write and commit the directory; return its summary. Raises as ``simulate``."""
        run = self._fleet.simulation.end()
        self.log.close()
        self._tables.add_up()
        block = self._scenario.model.cache.block_size
        trace = replace(
            requests_of(block, [], 0),
            source=str(self._directory.target.absolute() / ARRIVALS),
            sha256=self._directory.digest_of(ARRIVALS),
        )
        run, summary = summarized(self._scenario, trace, run, self._measured)
        options = self._fleet.simulation.options
        done = Execution(self._scenario, trace, self.log.requests, options, run, summary, self._tables)
        return store(done, self._directory, argv)
