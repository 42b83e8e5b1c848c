"""Eviction × routing × capacity on one fleet, with what no policy and no router could exceed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.replay.ceilings import ceilings, share
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.simulation import simulate
from kvcache_sim.tiers import COMPUTE, TIERS
from kvcache_sim.workload.trace import Trace

#: Settings that the study makes itself, and the option of ``kvsim study`` for each.
VARIED = {
    "cluster.machines": "--machines",
    f"tiers.{TIERS[COMPUTE]}.capacity": "--capacity",
    "router.policy": "--router",
    "cache.policy": "--policy",
}


@dataclass(frozen=True, slots=True)
class JointAsk:
    """What is varied: blocks of the GPU a machine, eviction policies, routers."""

    machines: int
    capacities: tuple[int, ...]
    policies: tuple[str, ...]
    routers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JointCell:
    """One fleet: its settings, share of prompt tokens served from a cache, mean TTFT, machines that work."""

    capacity_blocks: int
    policy: str
    router: str
    hit_rate: float
    ttft_ms: float
    working: int


@dataclass(frozen=True, slots=True)
class JointStudy:
    """Every fleet, and by capacity the hit rates of one cache with the blocks of all machines."""

    ask: JointAsk
    cells: tuple[JointCell, ...]
    #: By capacity: Belady's policy in one cache of all blocks; and a cache without bounds.
    belady: dict[int, float]
    unbounded: float

    def cell(self, capacity: int, policy: str, router: str) -> JointCell:
        """Return one fleet."""
        wanted = capacity, policy, router
        return next(c for c in self.cells if (c.capacity_blocks, c.policy, c.router) == wanted)

    def best(self, capacity: int) -> JointCell:
        """Return the fleet of most hits at a capacity, the first of equals."""
        return max((c for c in self.cells if c.capacity_blocks == capacity), key=lambda c: c.hit_rate)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "machines": self.ask.machines,
            "cells": [
                {
                    "capacity_blocks": c.capacity_blocks,
                    "policy": c.policy,
                    "router": c.router,
                    "hit_rate": c.hit_rate,
                    "ttft_ms": c.ttft_ms,
                    "working_machines": c.working,
                }
                for c in self.cells
            ],
            "one_cache": {
                "belady": {str(capacity): rate for capacity, rate in self.belady.items()},
                "unbounded": self.unbounded,
            },
        }


def joint_study(
    trace: Trace,
    ask: JointAsk,
    scenario: Callable[[Sequence[str]], Scenario],
    told: Callable[[str], None] = lambda _: None,
) -> JointStudy:
    """Simulate each combination on a trace; ``scenario`` makes one of ``--set`` assignments.

    ``told`` hears of each before it starts. Raises UsageError for one machine, and what a scenario or a run
    raises. Cost: a run a combination, one replay a capacity.
    """
    if ask.machines < 2:
        raise UsageError("a fleet has several machines", "--machines", got=str(ask.machines), expected="≥ 2")
    fleets = list(product(ask.capacities, ask.routers, ask.policies))
    # All are read before the first runs: what is wrong with the last is said at once.
    scenarios = [scenario(_assignments(ask.machines, *fleet)) for fleet in fleets]
    cells = []
    for (capacity, router, policy), made in zip(fleets, scenarios, strict=True):
        told(f"{capacity:,} blocks, {router}, {policy}")
        summary = summarize(simulate(made.settings, trace), made.settings.cache.block_size_tokens)
        working = sum(1 for requests in summary["machines"]["requests"] if requests)
        ttft = summary["latency"]["ttft"]["avg"]
        cells.append(JointCell(capacity, policy, router, summary["cache"]["token_hit_rate"], ttft, working))
    block = scenario([]).settings.cache.block_size_tokens
    prompts = blocks_of_prompts(ReplayRequest(trace, block, 1))
    belady = {c: ceilings(prompts, c * ask.machines)["belady"]["hit_rate"] for c in ask.capacities}
    unbounded = share(prompts, prompts.native.belady(2**63).hits)["hit_rate"]
    return JointStudy(ask, tuple(cells), belady, unbounded)


def _assignments(machines: int, capacity: int, router: str, policy: str) -> list[str]:
    """Return what ``--set`` says of one fleet."""
    values = (machines, f"{capacity} blocks", router, policy)
    return [f"{key}={value}" for key, value in zip(VARIED, values, strict=True)]
