"""The command that runs one cell of a study alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvcache_sim.base.errors import KvsimError
from kvcache_sim.extras.study.sweeps.cell import Setting
from kvcache_sim.scenario.idle import IdleError
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.yaml_tree import parse_path


def single_run(
    trace: Path | None, scenario: Path | None, fixed: Sequence[str], chosen: Mapping[str, Setting]
) -> list[str]:
    """Return the words of ``kvsim simulate`` for a cell: trace, scenario, common settings, own settings.

    A setting that only other cells use is left out, since it is refused in a run of its own. Cost: the
    scenario is read once, and once more for each of these.
    """
    settings = [*fixed, *(f"{name}={typed(value)}" for name, value in chosen.items())]
    while (idle := _idle(trace, scenario, settings)) is not None:
        settings.remove(idle)
    words = ["kvsim", "simulate", *([str(trace)] if trace is not None else [])]
    words += ["-c", str(scenario)] if scenario is not None else []
    return [*words, *(word for one in settings for word in ("--set", one))]


def typed(value: object) -> str:
    """Return a setting as text of the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def _idle(trace: Path | None, scenario: Path | None, settings: Sequence[str]) -> str | None:
    """Return the setting that one run would refuse as without effect; None where it refuses none."""
    try:
        load_scenario(scenario, settings, trace)
    except IdleError as error:
        for one in settings:
            path = parse_path(one.partition("=")[0], one)
            if path == error.path[: len(path)]:
                return one
    except KvsimError:
        pass  # the command reports the error
    return None
