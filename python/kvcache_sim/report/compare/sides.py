"""The sides of a comparison: finished runs, or scenario files that are simulated for it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.report.finished import FinishedRun, open_runs
from kvcache_sim.scenario.presets import scenario_file


def open_sides(
    paths: Sequence[Path], repeats: int, stack: ExitStack, intervals: bool = False
) -> list[list[FinishedRun]]:
    """Return each side's replications, with labels that differ.

    A directory is one run as it is; a file or ``preset:NAME`` is a scenario, simulated ``repeats`` times into
    a folder that ``stack`` removes. ``intervals`` replays short runs that are simulated once at both bounds
    of the model. Raises ``UsageError`` when directories are to be repeated, and what loading, reading and
    simulating raise.
    """
    paths = [path if path.is_dir() else scenario_file(path) for path in paths]
    if all(path.is_dir() or not path.exists() for path in paths):
        if repeats > 1:
            raise UsageError("finished runs cannot be repeated", where="--repeats", expected="scenario files")
        return [[run] for run in open_runs(paths)]
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvsim-compare-")))
    sides = []
    for number, path in enumerate(paths):
        if path.is_dir():
            if repeats > 1:
                raise UsageError(
                    "a finished run cannot be repeated", where=str(path), expected="a scenario file"
                )
            sides.append([FinishedRun(load_run(path), path.resolve().name)])
        else:
            with_intervals = intervals and repeats == 1
            sides.append(
                [_simulated(path, folder / f"{number}-{r}", r, with_intervals) for r in range(repeats)]
            )
    labels = [side[0].label for side in sides]
    for number, side in enumerate(sides, 1):
        if labels.count(side[0].label) > 1:
            for run in side:
                run.label = f"{run.label} ({number})"
    return sides


def _simulated(scenario_file: Path, directory: Path, repeat: int, intervals: bool) -> FinishedRun:
    from kvcache_sim.base.rng.root import repeat_seed
    from kvcache_sim.metrics.run_directory import open_run_directory
    from kvcache_sim.report.intervals.certainty import MOST_CPU_S, with_certainty
    from kvcache_sim.scenario.execute import execute, store
    from kvcache_sim.scenario.load import load_varied
    from kvcache_sim.scenario.requests import read_requests
    from kvcache_sim.simulation import RunOptions

    scenario = load_varied(scenario_file)
    if repeat:
        scenario = load_varied(scenario_file, [f"seed={repeat_seed(scenario.settings.seed, repeat)}"])
    trace = read_requests(scenario)
    with open_run_directory(directory, force=False) as target:
        began_s = time.process_time()
        done = execute(scenario, trace, RunOptions(times=intervals))
        if intervals and done.summary.get("step_times") and time.process_time() - began_s <= MOST_CPU_S:
            done, _, _ = with_certainty(done, trace)
        store(done, target, ["kvsim", "compare", str(scenario_file)])
    is_of_run = scenario_file.name == "scenario.yaml" and (scenario_file.parent / "run.json").exists()
    label = scenario_file.resolve().parent.name if is_of_run else scenario_file.stem
    return FinishedRun(load_run(directory), label, trace)
