"""vLLM's own Scheduler, OffloadingConnector and CPUOffloadingManager over several cache groups with many requests at
once, against ``replica.scheduler: vllm`` above ``tiers.cpu.semantics: vllm-offload``.

Streams, settings and the worker as in ``vllm_offload_schedules``, groups as in ``vllm_connector``. Run as a program:
FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout

from engine_oracles import vllm_connector, vllm_core, vllm_group_schedules, vllm_groups, vllm_schedules
from engine_oracles import vllm_offload_schedules as dense
from engine_oracles.streams import compare_streams
from engine_oracles.stubs import Real


class Drawn(dense.Drawn):
    """A stream as there, over groups in blocks of one size."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = random.Random(f"groups {seed}")
        size, made = vllm_core.BLOCK * draw.choice([1, 1, 2]), []
        for kind in ["full", *draw.choice(vllm_connector.KINDS[1:])]:
            reach = {"sliding": draw.randint(1, 160), "chunked": size * draw.randint(1, 6)}.get(kind, 0)
            made += [KvGroup(kind, size, reach, (0,))] * draw.choice([1, 1, 2])  # type: ignore[arg-type]
        draw.shuffle(made)
        interval = draw.choice([0, 0, None, size * self.per, 2 * size * self.per])
        if {group.kind for group in made} <= {"full", "chunked"}:
            interval = draw.choice([0, None])
        most = self.settings.max_num_batched_tokens
        layout = KvLayout(tuple(made), 1, 1)
        self.groups = GroupSettings("drawn", layout, most, interval, vllm_groups.LONGEST)
        longest = -(-int((self.trace.input_tokens + self.trace.output_tokens).max()) // size)
        blocks = len(made) * longest
        self.gpu = blocks + 4 + blocks // 20 + draw.randint(0, blocks // 3)
        self.cpu = max(1, draw.randint(1, 3 * blocks) // self.per)

    def __str__(self) -> str:
        kinds = [
            (group.kind, group.block_size_tokens, group.reach_tokens) for group in self.groups.layout.groups
        ]
        return f"{kinds}, interval {self.groups.retention_interval}, {super().__str__()}"


class Engine(dense.Engine):
    """The scheduler of a wheel over groups above its connector and tier."""

    drawn: Drawn

    def built(self, kind: Any, settings: Any, pool: tuple[int, bool]) -> Any:
        groups, layout = self.drawn.groups, self.drawn.groups.layout
        self.unit = layout.hash_block_size
        configuration = vllm_group_schedules.configuration(settings, groups, pool)
        vllm_connector.add_connector(configuration, self.drawn)
        configuration.kv_transfer_config.is_kv_consumer = True
        return kind(
            configuration,
            vllm_groups.configuration(self.real, pool[0], groups),
            vllm_schedules.GRAMMAR,
            block_size=layout.scheduler_block_size,
            hash_block_size=layout.hash_block_size,
        )

    def figures(self) -> dict[str, Any]:
        """Return what a run of this project says, with the groups of the free blocks."""
        return super().figures() | {"free queue": vllm_group_schedules.free_groups(self.scheduler)}


def ours(drawn: Drawn, lower: str = "vllm-offload", **changes: Any) -> dict[str, Any]:
    """Return the same of this project's scheduler, above a tier of these semantics."""
    block = drawn.groups.layout.scheduler_block_size
    cache = CacheSettings(block_size_tokens=block, semantics="vllm", groups=drawn.groups, num_layers=1)
    below = {"lower_semantics": lower, "lower_chunk_tokens": drawn.per * block} | changes
    simulation, figures = dense.run_of(drawn, replace(cache, **below))
    queue = simulation.replicas[0].store.free_queue()
    return figures | {"free queue": [None if key is None else key[0] for key in queue]}


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    drawn = Drawn(seed)
    return dense.compared(Engine(real, drawn), lambda: ours(drawn))


if __name__ == "__main__":
    code = compare_streams("vLLM offload group schedules", vllm_core.load, differs, *sys.argv[1:4])
    print(dense.met())
    sys.exit(code)
