"""LMCache's own LocalCPUBackend and LocalDiskBackend with their cache policies, driven over a stream.

Stood in for: torch, memory (an integer pool: a chunk is one unit), files, threads (a disk write is done at
once),
metrics, the engine around them (look up, retrieve and store are called here in its order).
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from kvcache_sim.replay.engine_requests import block_keys
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.trace import Trace
from support.product.machines import native_requests

from engine_oracles import stubs
from engine_oracles.streams import digest, lines_digest
from engine_oracles.stubs import Fields, Real

BLOCK = 16

_BACKENDS = "lmcache.v1.storage_backend."
REAL = frozenset(
    ["lmcache.utils"]
    + [
        _BACKENDS + name
        for name in (
            "abstract_backend",
            "cache_policy",
            "cache_policy.base_policy",
            "cache_policy.fifo",
            "cache_policy.lfu",
            "cache_policy.lru",
            "cache_policy.mru",
            "local_cpu_backend",
            "local_disk_backend",
        )
    ]
)


def load(wheel: Path) -> Real:
    """Import the classes from an unpacked wheel; everything else of it, and torch, is stood in for."""
    stubs.name_packages(wheel, "lmcache", "lmcache.v1", "lmcache.v1.storage_backend")
    sys.modules["lmcache"].torch_dev = stubs.Anything()  # type: ignore[attr-defined]
    sys.modules["lmcache"].torch_device_type = "cpu"  # type: ignore[attr-defined]
    sys.path.append(str(wheel))
    finder = stubs.install(("torch", "lmcache", "cachetools", "nvtx"), REAL)
    from lmcache.v1.storage_backend import cache_policy, local_cpu_backend, local_disk_backend

    # a write runs at once, and there is no file to remove
    local_disk_backend.asyncio = Fields(run_coroutine_threadsafe=lambda done, loop: done)
    local_disk_backend.os = Fields(remove=lambda path: None, path=os.path)
    return Real(
        Cpu=local_cpu_backend.LocalCPUBackend,
        Disk=local_disk_backend.LocalDiskBackend,
        get_cache_policy=cache_policy.get_cache_policy,
        stubbed=finder.stubbed,
    )


class Units:
    """CPU memory as a number of free units."""

    def __init__(self, free: int) -> None:
        self.free = free

    def allocate(self, *_: Any) -> Unit | None:
        if self.free == 0:
            return None
        self.free -= 1
        return Unit(self)


class Unit:
    """The memory of a chunk: counts references and pins, and is freed with the last reference."""

    tensor, byte_array = 0, b""

    def __init__(self, units: Units) -> None:
        self.units, self.references, self.pins = units, 1, 0
        self.metadata = Fields(shape=(), dtype=1, fmt=1, cached_positions=None)

    def ref_count_up(self) -> None:
        self.references += 1

    def ref_count_down(self) -> None:
        self.references -= 1
        self.units.free += self.references == 0

    def pin(self) -> None:
        self.pins += 1

    def unpin(self) -> None:
        self.pins -= 1

    @property
    def is_pinned(self) -> bool:
        return self.pins > 0

    @property
    def can_evict(self) -> bool:
        return self.pins == 0 and self.references == 1

    def get_physical_size(self) -> int:
        return 1

    get_size = get_physical_size


class Key(str):
    """A chunk's key, which names its file too."""

    chunk_hash = 0

    def to_string(self) -> str:
        return str(self)


class AtOnce:
    """The disk's worker: a task is done when it is submitted."""

    def exists_in_put_tasks(self, key: Key) -> bool:
        return False

    def try_insert_put_task(self, key: Key) -> bool:
        return True

    def insert_put_task(self, key: Key) -> None: ...  # of 0.4
    def remove_put_task(self, key: Key) -> None: ...
    def submit_task(self, kind: str, task: Any, **reported: Any) -> None:
        task(**reported)


class Pool:
    """A pool of threads that runs everything here."""

    map = staticmethod(map)


def backends(real: Real, request: ReplayRequest, policy: str) -> tuple[Any, Any]:
    """Return the CPU backend and, where there are chunks on disk, the disk backend."""
    cpu, disk = object.__new__(real.Cpu), object.__new__(real.Disk)
    for backend in (cpu, disk):
        backend.cache_policy = real.get_cache_policy(policy.upper())
        backend.keys_in_request, backend.batched_msg_sender = [], None
        backend.stats_monitor = stubs.Anything()
    cpu.hot_cache = cpu.cache_policy.init_mutable_mapping()
    cpu.use_hot, cpu.layerwise, cpu.enable_blending, cpu.cpu_lock = True, False, False, threading.Lock()
    cpu.memory_allocator = Units(request.capacity_blocks)
    disk.dict = disk.cache_policy.init_mutable_mapping()
    disk.disk_lock, disk.local_cpu_backend, disk.path, disk.loop = threading.Lock(), cpu, "", None
    disk.max_cache_size, disk.current_cache_size, disk.usage = request.disk_blocks, 0, 0
    disk.disk_worker, disk._read_thread_pool = AtOnce(), Pool
    disk.write_file = disk.read_file = lambda *_: None
    return cpu, disk if request.disk_blocks else None


def run(real: Real, request: ReplayRequest, policy: str, in_pool: list[int] | None = None) -> dict[str, Any]:
    """Drive the stream and return figures under the names of ``replay_lmcache``.

    With the tokens that the GPU has of each prompt, chunks that it has whole are not retrieved.
    """
    cpu, disk = backends(real, request, policy)
    names, chunk = block_keys(request), request.block_size_tokens
    hits, from_disk, stored, short, reads = list[int](), list[int](), 0, 0, 0
    for number, n in enumerate(request.trace.input_tokens.tolist()):
        keys = [Key(names.label(names.key(number, k))) for k in range(n // chunk)]
        on_cpu = cpu.batched_contains(keys, True)
        on_disk = disk.batched_contains(keys[on_cpu:], True) if disk else 0
        for backend in filter(None, (cpu, disk)):
            backend.touch_cache()
        found = on_cpu + on_disk
        start = in_pool[number] // chunk if in_pool else 0
        units = [cpu.get_blocking(key) for key in keys[start:on_cpu]]
        if read := keys[max(start, on_cpu) : found]:
            loaded = disk.batched_get_blocking(read)
            cpu.batched_submit_put_task(read, loaded)
            units += loaded
            reads += len(read)
        for unit in units:
            unit.ref_count_down()
        for index, key in enumerate(keys[:found]):
            (cpu if index < on_cpu else disk).unpin(key)
        new = []
        for _ in keys[found:]:
            unit = cpu.allocate(None, 1, busy_loop=False)
            if unit is None:
                break
            new.append(unit)
        short += len(new) < len(keys) - found
        stored += len(new)
        for backend in filter(None, (cpu, disk)):
            for key, unit in zip(keys[found:], new, strict=False):
                backend.submit_put_task(key, unit)
        for unit in new:
            unit.ref_count_down()
        hits.append(found * chunk)
        from_disk.append(on_disk)
    alone = {"read_chunks": reads, "per_request_hit_tokens": hits, "per_request_disk_chunks": from_disk}
    return (alone if in_pool else {}) | {
        "hit_tokens": sum(hits),
        "disk_hit_chunks": sum(from_disk),
        "stored_chunks": stored,
        "short_stores": short,
        "final_cpu_chunks": len(cpu.hot_cache),
        "final_disk_chunks": len(disk.dict) if disk else 0,
        "per_request_hit_tokens_sha256": digest(hits),
        "per_request_disk_chunks_sha256": digest(from_disk),
        "final_cpu_order_sha256": _order(cpu.cache_policy, cpu.hot_cache),
        "final_disk_order_sha256": _order(disk.cache_policy, disk.dict) if disk else None,
    }


def _order(policy: Any, chunks: Any) -> str:
    """Return the digest of a tier's keys in the dictionary's order, under LFU in the policy's."""
    counted = getattr(policy, "freq_to_keys", None)
    keys = chunks if counted is None else [key for same in counted.values() for key in same]
    return lines_digest(keys)


def timed_below_pool(trace: Trace, gpu: int, below: str, step: int = 8192) -> tuple[Any, list[int]]:
    """Return a run of vLLM's pool above some tiers, and by request the tokens that the pool alone has.

    Steps and copies take next to no time.
    """
    edges = "gpu->cpu, cpu->gpu" + (", cpu->disk, disk->cpu" if "disk" in below else "")
    text = (
        f"cache: {{block_size: {BLOCK}}}\n"
        f"replica: {{max_num_batched_tokens: {step}, step_time: 'linear:base=1us'}}\n"
        f"tiers: {{gpu: {{capacity: {gpu} blocks}}, {below}}}\n"
        f"channels: {{all: {{bandwidth: 1000PB/s, latency: 0s, edges: [{edges}]}}}}\n"
    )
    run = execute(scenario_from_text(text, "s.yaml", Path.cwd(), []), trace, RunOptions()).run
    alone = ReplayRequest(trace, BLOCK, gpu, outputs="computed")
    return run, native_requests(alone).vllm(gpu)["hits"].tolist()


def moved_blocks(run: Any, edge: str) -> int:
    """Return the blocks of the default model that an edge moved."""
    return int(run.counters.get(f"edge.{edge}.bytes", 0)) // (BLOCK * 131_072)
