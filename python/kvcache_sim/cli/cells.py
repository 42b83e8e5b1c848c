"""Options that several verbs take: the workers and the runner of a study's cells, and the shard to run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvcache_sim.base.errors import UsageError

if TYPE_CHECKING:
    from kvcache_sim.extras.study.sweeps.cell import Limits, Setting, Study
    from kvcache_sim.extras.study.sweeps.coordinator import CellRunner
    from kvcache_sim.extras.study.sweeps.plan import Shard


def usable_cores() -> int:
    """Return the number of cores that this process may use; all of the machine's on macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_shard(text: str) -> Shard:
    """Return the part of ``--shard I/N``; all cells where it is empty."""
    from kvcache_sim.extras.study.sweeps.plan import WHOLE, Shard

    if not text:
        return WHOLE
    number, slash, count = text.partition("/")
    if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= 100_000:
        return Shard(int(number), int(count))
    raise UsageError("not a shard", where="--shard", got=repr(text), expected="I/N with I from 1 to N")


def cell_runner(on: str, jobs: int, limits: Limits) -> CellRunner:
    """Return the runner of ``--on``: this machine's workers, or Ray."""
    from kvcache_sim.extras.study.sweeps.supervisor import LocalRunner

    kind, _, address = on.partition(":")
    if on == "local":
        return LocalRunner(jobs, limits)
    if kind == "ray":
        from kvcache_sim.extras.study.sweeps.ray_runner import RayRunner, refuse_unreachable

        runner = RayRunner(address, jobs, limits)
        refuse_unreachable(address)
        return runner
    raise UsageError("nowhere to run cells", where="--on", got=repr(on), expected="local or ray[:ADDRESS]")


def say_launch(study: Study, settings: Mapping[str, Setting]) -> None:
    """Print the engine's launch line of a cell, and the settings that it has no flag for."""
    from kvcache_sim.extras.study.sweeps.simulation import load_cell
    from kvcache_sim.report.plain_table import shell_lines
    from kvcache_sim.scenario.launch.to_line import launch_of_scenario

    resolved = load_cell(study.base, study.directory, settings).resolved
    engine = str(resolved["replica"]["release"] or "").partition("@")[0]
    if not engine:
        return
    launch = launch_of_scenario(resolved, engine)
    print(shell_lines("its launch line: ", shlex.split(launch.line)), file=sys.stderr)
    if launch.without_flag:
        print(f"no flag of {engine}: {', '.join(launch.without_flag)}", file=sys.stderr)
