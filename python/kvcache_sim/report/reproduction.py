"""A finished run, run again from its directory."""

from __future__ import annotations

import platform
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from kvcache_sim import __version__
from kvcache_sim.base.errors import InputOutputError, TraceError
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_to_repeat
from kvcache_sim.scenario.requests import open_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.readers.stream import TraceStream
from kvcache_sim.workload.trace import Trace


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The comparison of a second run with the first."""

    #: digest → (then, now).
    digests: dict[str, tuple[str, str]]
    #: Differences of this installation.
    notes: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Return True if every digest is equal."""
        return all(before == now for before, now in self.digests.values())


def reproduce(directory: Path, plugins: bool = False) -> Reproduction:
    """Run a finished run again; nothing is written.

    Its plug-ins are imported if ``plugins`` is true, else refused.

    Raises ``TraceError`` when its trace is no longer the same, ``InputOutputError`` for a manifest without
    what is needed, and what loading and simulating raise.
    """
    stored = load_run(directory)
    manifest = stored.manifest
    scenario = scenario_to_repeat(stored.scenario, directory, plugins)
    try:
        planned, digests = manifest["trace"]["sha256"], manifest["digest"]
        options = _options(manifest["options"])
        before = {name: str(digests[name]) for name in ("events", "results")}
    except (KeyError, TypeError, ValueError) as error:
        raise InputOutputError(f"manifest lacks {error}", where=str(directory / "run.json")) from None
    requests = open_requests(scenario, options)
    if not isinstance(requests, TraceStream):
        _refuse_another(requests, str(planned))
    again = execute(scenario, requests, options)
    _refuse_another(again.trace, str(planned))
    now = {"events": again.run.digest_events, "results": again.run.digest_results}
    return Reproduction({name: (before[name], now[name]) for name in before}, _notes(manifest))


def _refuse_another(trace: Trace, planned: str) -> None:
    if planned != trace.sha256:
        raise TraceError(
            "not the trace that ran", where=trace.source, got=trace.sha256[:16], expected=planned[:16]
        )


def _options(plain: dict[str, Any]) -> RunOptions:
    window = plain.get("record_window_ns")
    known = {field.name for field in fields(RunOptions)}  # runs of older versions have removed options
    taken = {name: value for name, value in plain.items() if name in known}
    return RunOptions(**{**taken, "record_window_ns": None if window is None else (window[0], window[1])})


def _notes(manifest: dict[str, Any]) -> tuple[str, ...]:
    here = {"kvsim": __version__, "python": platform.python_version(), "numpy": np.__version__}
    return tuple(
        f"made with {name} {manifest[name]}, this is {version}"
        for name, version in here.items()
        if name in manifest and manifest[name] != version
    )
