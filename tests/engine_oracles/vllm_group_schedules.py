"""vLLM's own Scheduler and AsyncScheduler over several cache groups, against ``replica.scheduler: vllm``.

Streams and settings as in ``vllm_schedules``, groups as in ``vllm_groups``; a quarter of the streams runs
without prefix caching. Run as a program: FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from kvcache_sim.workload.trace import Trace
from support.clusters import cluster

from engine_oracles import vllm_core, vllm_groups, vllm_schedules
from engine_oracles.streams import compare_streams
from engine_oracles.stubs import Real

Drawn = tuple[Trace, ReplicaSettings, GroupSettings, int, bool]


def asked(seed: int) -> Drawn:
    """Return requests, the scheduler's settings, the groups, blocks of the pool, whether it keeps prefixes."""
    trace, settings, _, _ = vllm_schedules.asked(seed)
    draw = random.Random(-seed - 1)
    layout = vllm_groups.layout_of(seed, draw)
    align = layout.scheduler_block_size
    interval = draw.choice([0, 0, None, align, 2 * align])
    if all(group.kind in ("full", "chunked") for group in layout.groups):
        interval = 0
    groups = GroupSettings("drawn", layout, settings.max_num_batched_tokens, interval, vllm_groups.LONGEST)
    longest = int((trace.input_tokens + trace.output_tokens).max())
    most = sum(-(-longest // group.block_size_tokens) for group in layout.groups)
    blocks = most + 4 + most // 20 + draw.randint(0, 2 * most)
    return trace, settings, groups, blocks, draw.random() < 0.75


class Engine(vllm_schedules.Engine):
    """The scheduler of a wheel over cache groups."""

    def __init__(self, real: Real, drawn: Drawn) -> None:
        trace, settings, self.groups, blocks, keeps = drawn
        super().__init__(real, trace, settings, (blocks, keeps))

    def made(self, kind: Any, settings: ReplicaSettings, pool: tuple[int, bool]) -> Any:
        layout, (blocks, keeps) = self.groups.layout, pool
        self.unit, align = layout.hash_block_size, layout.scheduler_block_size
        if not keeps and any(group.kind == "linear" for group in layout.groups):
            # a common multiple of all blocks, of which a state's is the longest
            self.unit = align = math.lcm(align, vllm_groups.LONGEST)
        return kind(
            configuration(settings, self.groups, pool),
            vllm_groups.configuration(self.real, blocks, self.groups, keeps),
            vllm_schedules.GRAMMAR,
            block_size=align,
            hash_block_size=self.unit,
        )

    def figures(self) -> dict[str, Any]:
        """Return what the schedule says, and the groups of the free blocks, front to back."""
        return super().figures() | {"free queue": free_groups(self.scheduler)}


def free_groups(scheduler: Any) -> list[int | None]:
    """Return the groups of a scheduler's free blocks, front to back, None without a key."""
    blocks = scheduler.kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()
    keys = [block.block_hash for block in blocks]
    return [None if key is None else int.from_bytes(key[-4:], "big") for key in keys]


def configuration(settings: ReplicaSettings, groups: GroupSettings, pool: tuple[int, bool]) -> Any:
    """Return vLLM's configuration for a model of groups."""
    made, layout = vllm_schedules.configuration(settings, pool), groups.layout
    states = [group.block_size_tokens for group in layout.groups if group.kind == "linear"]
    made.model_config.max_model_len = vllm_groups.LONGEST
    made.max_in_flight_tokens = made.max_concurrent_batches * settings.max_num_batched_tokens
    made.cache_config.block_size = states[0] if states else layout.scheduler_block_size
    made.cache_config.mamba_cache_mode = "align" if states and pool[1] else "none"
    return made


def ours(drawn: Drawn) -> dict[str, Any]:
    """Return the same of this project's scheduler."""
    trace, settings, groups, blocks, keeps = drawn
    made = cluster((blocks,))
    machine = replace(made.machines[0], replica=settings, step_time=load_step_time(vllm_schedules.CLOCK))
    block = groups.layout.scheduler_block_size
    cache = CacheSettings(block_size_tokens=block, semantics="vllm", enabled=keeps, groups=groups)
    simulation = Simulation(replace(made, machines=(machine,), cache=cache), trace, RunOptions(schedule=True))
    run = simulation.run()
    replica: Any = simulation.replicas[0]
    log = replica.schedule()
    queue = [None if key is None else key[0] for key in replica.store.free_queue()]
    return {
        "steps": log.steps,
        "admissions": log.admissions,
        "requests": sorted(log.requests),
        "turned away": vllm_schedules.turned_away(run),
        "free queue": queue,
    }


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    drawn = asked(seed)
    engine = Engine(real, drawn)
    return vllm_schedules.compared(engine, lambda: ours(drawn), str(drawn[1:]))


if __name__ == "__main__":
    sys.exit(compare_streams("vLLM group schedules", vllm_core.load, differs, *sys.argv[1:4]))
