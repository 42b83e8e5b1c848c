"""A paper's policy beside LRU: on a trace, or on workloads of several seeds with their mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvcache_sim.replay.papers.compare import PAPERS, PaperResult, compare
from kvcache_sim.sweeps.paper_workload import CAPACITY_BLOCKS, paper_workload
from kvcache_sim.workload.trace import Trace

#: Seeds of the workloads where no trace is given.
SEEDS = (1, 2, 3, 4, 5)


def paper_study(name: str, trace: Trace | None, capacities: Sequence[int]) -> dict[str, Any]:
    """Return the figures of each capacity, and of each seed where there is no trace, with their means.

    ``holds``: whether the sign of the mean is the paper's. Raises UsageError for a prompt that a cache cannot
    hold.
    """
    paper = PAPERS[name]
    runs: list[tuple[int | None, PaperResult]] = []
    for capacity in capacities or (CAPACITY_BLOCKS,):
        if trace is not None:
            runs.append((None, compare(name, trace, capacity)))
        else:
            runs += [(seed, compare(name, paper_workload(seed), capacity)) for seed in SEEDS]
    lru, policy = (sum(getattr(run, key) for _, run in runs) / len(runs) for key in ("lru", "policy"))
    return {
        "policy": name,
        "claim": paper.claim,
        "figure": paper.figure,
        "runs": [{"seed": seed, **run.as_json()} for seed, run in runs],
        "mean": {"lru": lru, "value": policy},
        "holds": policy > lru if paper.more else policy < lru,
    }


def paper_text(study: dict[str, Any]) -> str:
    """Return the table of ``paper_study``."""
    name = study["policy"]
    lines = [f"{study['figure']}; the paper: {study['claim']}"]
    lines.append(f"{'blocks':>8} {'seed':>5} {'requests':>9} {'lru':>8} {name:>{max(8, len(name))}}")
    width = max(8, len(name))
    for run in study["runs"]:
        seed = "–" if run["seed"] is None else str(run["seed"])
        mark = "" if run["holds"] else "  the other way"
        lines.append(
            f"{run['capacity_blocks']:>8,} {seed:>5} {run['requests']:>9,} {run['lru']:>8.4f} "
            f"{run['value']:>{width}.4f}{mark}"
        )
    mean = study["mean"]
    holds = "the sign of the paper" if study["holds"] else "not the sign of the paper"
    lines.append(f"{'mean':>24} {mean['lru']:>8.4f} {mean['value']:>{width}.4f}  {holds}")
    return "\n".join(lines)
