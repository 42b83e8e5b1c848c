"""Marconi beside a state every block and beside LRU: on a trace, or on workloads of several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kvcache_sim.replay.papers.marconi_replay import MarconiResult, marconi_beside
from kvcache_sim.sweeps.paper_study import SEEDS
from kvcache_sim.sweeps.paper_workload import CAPACITY_BLOCKS, paper_workload
from kvcache_sim.workload.trace import Trace

_CLAIM = "hits up to 34.4 × those of a state every block (Marconi, MLSys'25)"
_RATES = ("every_block", "branches_lru", "marconi")


def marconi_study(trace: Trace | None, capacities: Sequence[int]) -> dict[str, Any]:
    """Return the hit rates of each capacity, and of each seed where there is no trace, with their means.

    ``holds``: whether Marconi's mean is above a state every block's; ``admission_holds``: whether that of
    its states with LRU is; ``eviction_holds``: whether Marconi's is above the latter. Raises UsageError for
    a prompt that a cache cannot hold.
    """
    runs: list[tuple[int | None, MarconiResult]] = []
    for capacity in capacities or (CAPACITY_BLOCKS,):
        if trace is not None:
            runs.append((None, marconi_beside(trace, capacity)))
        else:
            runs += [(seed, marconi_beside(paper_workload(seed), capacity)) for seed in SEEDS]
    mean = {key: sum(getattr(run, key) for _, run in runs) / len(runs) for key in _RATES}
    return {
        "policy": "marconi",
        "claim": _CLAIM,
        "figure": "hit rate",
        "runs": [{"seed": seed, **asdict(run)} for seed, run in runs],
        "mean": mean,
        "holds": mean["marconi"] > mean["every_block"],
        "admission_holds": mean["branches_lru"] > mean["every_block"],
        "eviction_holds": mean["marconi"] > mean["branches_lru"],
    }


def marconi_text(study: dict[str, Any]) -> str:
    """Return the table of ``marconi_study``."""
    lines = [f"hit rate of a hybrid model; the paper: {study['claim']}"]
    head = ("blocks", "seed", "requests", "every block", "branches, lru", "marconi", "alpha")
    lines.append("{:>8} {:>5} {:>9} {:>12} {:>14} {:>8} {:>6}".format(*head))
    for run in study["runs"]:
        seed = "–" if run["seed"] is None else str(run["seed"])
        lines.append(
            f"{run['capacity_blocks']:>8,} {seed:>5} {run['requests']:>9,} {run['every_block']:>12.4f} "
            f"{run['branches_lru']:>14.4f} {run['marconi']:>8.4f} {run['alpha']:>6.1f}"
        )
    mean = study["mean"]
    lines.append(
        f"{'mean':>24} {mean['every_block']:>12.4f} {mean['branches_lru']:>14.4f} {mean['marconi']:>8.4f}"
    )
    sign = "the sign of the paper" if study["holds"] else "not the sign of the paper"
    kept, gone = ("more" if study[key] else "no more" for key in ("admission_holds", "eviction_holds"))
    lines.append(f"{sign}; states at branches and ends: {kept} hits, eviction by FLOPs a byte: {gone}")
    return "\n".join(lines)
