"""Options that several verbs take: the workers and the runner of a study's cells, and the shard to run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kvcache_sim.base.errors import UsageError

if TYPE_CHECKING:
    from kvcache_sim.extras.study.sweeps.cell import Limits
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
        from kvcache_sim.extras.study.sweeps.ray_runner import RayRunner

        return RayRunner(address, jobs, limits)
    raise UsageError("nowhere to run cells", where="--on", got=repr(on), expected="local or ray[:ADDRESS]")
