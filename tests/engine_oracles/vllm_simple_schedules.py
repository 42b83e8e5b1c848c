"""vLLM's own Scheduler and SimpleCPUOffloadConnector with many requests at once, against ``replica.scheduler: vllm``
above ``tiers.cpu.semantics: vllm-simple-kv-offload``.

Even streams are those of ``vllm_offload_schedules``, odd ones of ``vllm_offload_group_schedules``, over a tier of
blocks that is at times nearly all in copies. The worker is stood in for as there; at a preemption it waits for all
copies. Run as a program: FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


from engine_oracles import offload_worker, vllm_connector, vllm_core
from engine_oracles import vllm_offload_group_schedules as groups
from engine_oracles import vllm_offload_schedules as dense
from engine_oracles.offload_worker import Copies
from engine_oracles.streams import compare_streams
from engine_oracles.stubs import Real, Record


class Drawn(groups.Drawn):
    """A stream as there; a tier of ``cpu`` blocks, and whether it stores blocks only before they leave the pool."""

    def __init__(self, seed: int) -> None:
        self.is_dense = seed % 2 == 0
        if self.is_dense:
            dense.Drawn.__init__(self, seed)
        else:
            super().__init__(seed)
            layout = self.groups.layout
            # a window of one token reads no block, and loads one
            least = {"sliding": 2}
            made = tuple(
                replace(one, reach_tokens=max(one.reach_tokens, least.get(one.kind, 0)))
                for one in layout.groups
            )
            self.groups = replace(self.groups, layout=replace(layout, groups=made))
        draw = random.Random(f"simple {seed}")
        self.per, self.policy = 1, "lru"
        self.is_lazy = draw.random() < 0.4
        if draw.random() < 0.4:
            self.cpu = draw.randint(1, 12)
        #: The engine stores again and again what its tier evicts, without requests too: they come without pause.
        self.is_endless = self.is_lazy and self.cpu < self.gpu
        if self.is_endless:
            self.copies = draw.choice([Copies(800_000, 0), Copies(2_500_000, 1000)])
            self.trace = replace(self.trace, arrival_ns=self.trace.arrival_ns // 100)

    def __str__(self) -> str:
        return f"{'lazy' if self.is_lazy else 'eager'}, {super().__str__()}"


class Worker(offload_worker.Worker):
    """The connector's worker: a step's loads are one copy, and so are its stores."""

    def begin(self, meta: Any, now: int) -> int:
        """Submit what a step begins with; return when the copies that it waits for have ended."""
        for event, blocks in self.unsubmitted:
            self.stored_blocks += blocks
            self.ends[event] = self.down.send(blocks, now)
        self.unsubmitted.clear()
        begun = max([now, *self.ends.values()]) if meta.need_flush else now
        if meta.load_event >= 0:
            self.loaded_blocks += len(meta.load_gpu_blocks)
            self.ends[-1 - meta.load_event] = self.up.send(len(meta.load_gpu_blocks), begun)
        return begun

    def end(self, meta: Any) -> None:
        """Keep a step's stores for the next one."""
        if meta.store_event >= 0:
            self.unsubmitted.append((meta.store_event, len(meta.store_gpu_blocks)))

    def reported(self, now: int, requests: dict[int, list[str]]) -> tuple[dict[int, int], list[str]]:
        """Return the stores that have ended, and the requests whose load has, in the order of their admissions."""
        done = sorted(event for event, end in self.ends.items() if end <= now)
        for event in done:
            del self.ends[event]
        loads = [-1 - event for event in reversed(done) if event < 0]
        arrived = [name for load in loads for name in requests[load]]
        return {event: 1 for event in done if event >= 0}, arrived


class Engine(groups.Engine):
    """The scheduler of a wheel above its second offloader."""

    drawn: Drawn

    def __init__(self, real: Real, drawn: Drawn) -> None:
        super().__init__(real, drawn)
        self.worker: Worker = Worker(drawn.copies)

    def made(self, kind: Any, settings: Any, pool: tuple[int, bool]) -> Any:
        """Return the scheduler with its connector over the drawn stream's groups."""
        connector, scheduling = vllm_connector.connector_of()
        there = import_module("vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector")
        utils = import_module("vllm.v1.core.kv_cache_utils")
        layout = self.drawn.groups.layout
        sizes = layout.scheduler_block_size, layout.hash_block_size
        utils.resolve_kv_cache_block_sizes = lambda *_: sizes  # type: ignore[attr-defined]
        capacity = self.drawn.cpu + 1  # with the tier's null block

        def create(config: Any, kv_cache_config: Any, **_: Any) -> Any:
            extra = {"cpu_bytes_to_use": capacity, "lazy_offload": self.drawn.is_lazy}
            config.kv_transfer_config.kv_connector_extra_config = extra
            # a byte a block
            tensor = Record(
                size=kv_cache_config.num_blocks, layers=[], layer_stride=0, block_stride=0, offset=0
            )
            kv_cache_config.kv_cache_tensors.append(tensor)
            role = connector.KVConnectorRole.SCHEDULER
            return there.SimpleCPUOffloadConnector(config, role, kv_cache_config)

        scheduling.KVConnectorFactory = Record(create_connector=create)
        metadata = import_module("vllm.v1.simple_kv_offload.metadata")
        self.complete = metadata.SimpleCPUOffloadWorkerMetadata
        built = groups.Engine.built if not self.drawn.is_dense else dense.Engine.built
        scheduler = built(self, kind, settings, pool)
        self.watch(scheduler.connector)
        return scheduler

    def watch(self, connector: Any) -> None:
        """Count loads, and steps after which the tier has no block for a store."""
        self.manager = connector.scheduler_manager
        self.cursor = None
        connector.get_kv_connector_stats = lambda: None
        self.below = vllm_core.evictions_of(Record(block_pool=self.manager.cpu_block_pool))
        self.note_hits(connector)
        prepared = self.manager.prepare_store_specs

        def prepare(out: Any) -> Any:
            self.cursor = self.manager._cursor
            found = prepared(out)
            self.counts["steps with a full tier"] += not self.manager.cpu_block_pool.get_num_free_blocks()
            return found

        self.manager.prepare_store_specs = prepare
        if self.drawn.is_endless:
            pending = self.manager.has_pending_stores
            more = lambda: self.next < len(self.trace) or bool(self.live)  # noqa: E731
            self.manager.has_pending_stores = lambda: pending() and more()

    def outputs(self, **values: Any) -> Record:
        """Return a step's outputs with the copies that have ended."""
        requests = self.manager._load_event_to_reqs
        stores, arrived = self.worker.reported(self.now, requests)
        done = Record(kv_connector_worker_meta=self.complete(stores), finished_recving=arrived)
        return Record(**values, kv_connector_output=done)

    def decide(self) -> dense.Step:
        """Decide a step; keep whether it looked at further free blocks."""
        step = super().decide()
        self.counts["lazy"] = self.drawn.is_lazy
        step.out.has_moved = self.manager._cursor is not self.cursor
        return step

    def rests(self, step: dense.Step) -> bool:
        """True if a step computes and begins nothing: the engine polls until something comes."""
        meta = step.out.kv_connector_metadata
        copies = meta.store_event >= 0 or meta.load_event >= 0 or meta.need_flush or self.worker.unsubmitted
        return not (step.out.num_scheduled_tokens or copies or step.out.has_moved)

    def figures(self) -> dict[str, Any]:
        """Return what a run of this project says."""
        figures = groups.Engine.figures(self) if not self.drawn.is_dense else dense.Engine.figures(self)
        figures |= {"evicted chunks": self.below["blocks"]}
        moving = ("blocks", "chunks", "the pool", "queue") if self.drawn.is_endless else ()
        return {name: value for name, value in figures.items() if not name.endswith(tuple(moving))}


def ours(drawn: Drawn) -> dict[str, Any]:
    """Return the same of this project's scheduler."""
    lazy = drawn.settings.max_num_batched_tokens if drawn.is_lazy else None
    above = dense.ours if drawn.is_dense else groups.ours
    return above(drawn, "vllm-simple-kv-offload", lower_chunk_tokens=0, lower_lazy_tokens=lazy)


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    drawn = Drawn(seed)
    return dense.compared(Engine(real, drawn), lambda: ours(drawn))


if __name__ == "__main__":
    code = compare_streams("vLLM simple offload schedules", vllm_core.load, differs, *sys.argv[1:4])
    print(dense.met())
    sys.exit(code)
