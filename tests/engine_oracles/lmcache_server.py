"""LMCache's own server classes, driven over streams with times: L1Manager, the eviction, store and prefetch
controllers, their policies, LRU and ARC.

Real too: the allocator's free list (AddressManager), the storage (MockL2Adapter). Stood in for: torch, native locks
and bitmaps, metrics, the controllers' threads (the eviction loops run once for each second of the stream, the others
at once) and the connector (look up, load, store each step, end).
"""

from __future__ import annotations

import logging
import random
import sys
import threading
import types
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
from kvcache_sim.replay.engine_requests import block_keys, native_requests  # noqa: E402
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest  # noqa: E402
from kvcache_sim.scenario.execute import execute  # noqa: E402
from kvcache_sim.scenario.load import scenario_from_text  # noqa: E402
from kvcache_sim.simulation import RunOptions  # noqa: E402

from engine_oracles import stubs  # noqa: E402
from engine_oracles.streams import compare_streams, in_chunks, stream, unequal  # noqa: E402
from engine_oracles.stubs import Anything  # noqa: E402

_DISTRIBUTED = "lmcache.v1.distributed"
_POLICIES = ("eviction_policy", "eviction_policy.factory", "eviction_policy.lru", "eviction_policy.arc")
REAL = frozenset(
    f"{_DISTRIBUTED}.{name}"
    for name in (
        *_POLICIES,
        "error",
        "eviction",
        "internal_api",
        "l1_manager",
        "storage_controller",
        "storage_controllers.eviction_controller",
        "storage_controllers.prefetch_controller",
        "storage_controllers.prefetch_policy",
        "storage_controllers.store_controller",
        "storage_controllers.store_policy",
        "storage_controllers.utils",
        "api",
        "bitmap_ops",
        "bitmap_ops.fold",
        "l2_adapters.base",
        "l2_adapters.mock_l2_adapter",
    )
) | {"lmcache.v1.memory_management"}
CHUNK_BYTES = 4096


class Lock:
    """A native lock that counts its holders and does not expire."""

    def __init__(self, *_: Any) -> None:
        self.held = 0

    def lock(self) -> None:
        self.held += 1

    def unlock(self) -> None:
        self.held -= 1

    def is_locked(self) -> bool:
        return self.held > 0


class Memory:
    """L1MemoryManager over the real free list: a chunk is an address."""

    def __init__(self, real: types.SimpleNamespace, chunks: int) -> None:
        self.errors = real.L1Error
        self.addresses, self.total = real.AddressManager(chunks * CHUNK_BYTES), chunks * CHUNK_BYTES

    def allocate(self, _: Any, count: int) -> tuple[Any, list[Any]]:
        try:
            chunks = self.addresses.batched_allocate(CHUNK_BYTES, count)
        except RuntimeError:
            return self.errors.OUT_OF_MEMORY, []
        return self.errors.SUCCESS, [Chunk(address, size) for address, size in chunks]

    def free(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            self.addresses.free(chunk.address, chunk.size)

    def get_memory_usage(self) -> tuple[int, int]:
        return self.addresses.total_allocated_size, self.total

    def get_backend_type(self, _: Any) -> str:
        return "DRAM"


class Chunk:
    """The memory of a chunk."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size

    tensor = Anything()

    def set_l1_manager(self, _: int) -> None: ...

    def get_size(self) -> int:
        return self.size


class Bitmap:
    """Bits in a row, as the native class has them."""

    def __init__(self, size: int, leading: int = 0) -> None:
        self.bits = [at < leading for at in range(size)]

    def size(self) -> int:
        return len(self.bits)

    __len__ = size

    def set(self, at: int) -> None:
        self.bits[at] = True

    def test(self, at: int) -> bool:
        return self.bits[at]

    def popcount(self) -> int:
        return sum(self.bits)

    def get_indices_list(self) -> list[int]:
        return [at for at, bit in enumerate(self.bits) if bit]

    def gather(self, values: list[Any]) -> list[Any]:
        return [values[at] for at in self.get_indices_list()]

    def copy(self) -> Bitmap:
        return made(self.bits)

    def __or__(self, other: Bitmap) -> Bitmap:
        return made(map(max, self.bits, other.bits))

    def __and__(self, other: Bitmap) -> Bitmap:
        return made(map(min, self.bits, other.bits))

    def __invert__(self) -> Bitmap:
        return made(not bit for bit in self.bits)


def made(bits: Iterable[bool]) -> Bitmap:
    bitmap = Bitmap(0)
    bitmap.bits = list(bits)
    return bitmap


def leading(rows: list[Bitmap], _: list[int]) -> tuple[int, list[Bitmap]]:
    """Fold and unfold one row of full attention: the leading run."""
    (row,) = rows
    run = next((at for at, bit in enumerate(row.bits) if not bit), len(row))
    return run, [Bitmap(len(row), run)]


class AtOnce:
    """asyncio for the storage's loop: everything is done when it is submitted."""

    @staticmethod
    def run_coroutine_threadsafe(work: Any, _: Any) -> None:
        with suppress(StopIteration):
            work.send(None)

    @staticmethod
    def new_event_loop() -> Any:
        return types.SimpleNamespace(call_soon_threadsafe=lambda do, *on: do(*on))

    @staticmethod
    async def sleep(_: float) -> None: ...


def load(wheel: Path) -> types.SimpleNamespace:
    """Import the classes from an unpacked wheel; everything else of it, and torch, is stood in for."""
    packages = (
        "lmcache",
        "lmcache.v1",
        _DISTRIBUTED,
        f"{_DISTRIBUTED}.storage_controllers",
        f"{_DISTRIBUTED}.l2_adapters",
    )
    for package in packages:
        module = types.ModuleType(package)
        module.__path__ = [str(wheel / package.replace(".", "/"))]
        sys.modules[package] = module
    finder = stubs.install(("torch", "lmcache", "nvtx"), REAL)
    from lmcache.v1 import memory_management
    from lmcache.v1.distributed import api, error, l1_manager
    from lmcache.v1.distributed.l2_adapters import mock_l2_adapter
    from lmcache.v1.distributed.storage_controllers import (
        eviction_controller,
        prefetch_controller,
        prefetch_policy,
        store_controller,
        store_policy,
        utils,
    )

    l1_manager.TTLLock = Lock
    for module in (prefetch_controller, prefetch_policy, utils, mock_l2_adapter):
        module.Bitmap, module.fold_unfold_grouped = Bitmap, leading
    prefetch_controller.resolve_l1_affinity = lambda *_: 0
    prefetch_controller.get_size_bytes = lambda *_: CHUNK_BYTES
    mock_l2_adapter.asyncio, mock_l2_adapter.clone_tensor_memory_obj = AtOnce, lambda chunk: chunk
    mock_l2_adapter.threading = types.SimpleNamespace(
        Lock=threading.Lock, Thread=lambda **_: types.SimpleNamespace(start=lambda: None)
    )
    return types.SimpleNamespace(
        L1Manager=l1_manager.L1Manager,
        api=api,
        Storage=mock_l2_adapter.MockL2Adapter,
        prefetch=prefetch_controller,
        PrefetchPolicy=prefetch_policy.DefaultPrefetchPolicy,
        StoreController=store_controller.StoreController,
        StorePolicy=store_policy.DefaultStorePolicy,
        L1Error=error.L1Error,
        controller=eviction_controller,
        AddressManager=memory_management.AddressManager,
        stubbed=finder.stubbed,
    )


class Key(str):
    """A chunk's key, of one model and one rank."""

    model_name, kv_rank, cache_salt = "model", 0, ""


class Server:
    """The manager and its controllers, by the stream's clock; 0 chunks of storage: none."""

    def __init__(self, real: types.SimpleNamespace, chunks: int, disk_chunks: int, policy: str) -> None:
        manager_config = types.SimpleNamespace(
            gds_l1_config=None,
            memory_config=types.SimpleNamespace(devdax_path="", use_hugepages=False),
            write_ttl_seconds=600,
            read_ttl_seconds=600,
            tag="",
        )
        self.real, self.success = real, real.L1Error.SUCCESS
        self.l1 = real.L1Manager(manager_config)
        self.l1._memory_manager = Memory(real, chunks)
        # the server's own defaults
        config = types.SimpleNamespace(
            eviction_policy=policy.upper(),
            trigger_watermark=0.8,
            eviction_ratio=0.2,
            extra_logging_enabled=False,
        )
        # a loop ends after the pass that it sleeps for
        real.controller.time = types.SimpleNamespace(sleep=lambda _: self.stop(), monotonic=float)
        self.loops = [real.controller.L1EvictionController(self.l1, config)]
        self.storage, storages, below = None, [], []
        tagged = types.SimpleNamespace(tag="", affinity_tag="")  # read by 0.5.6
        if disk_chunks:
            gib = disk_chunks * CHUNK_BYTES / 2**30
            self.storage = real.Storage(types.SimpleNamespace(max_size_gb=gib, mock_bandwidth_gb=1))
            state = real.controller.L2AdapterEvictionState(0, self.storage, config)
            self.loops.append(real.controller.L2EvictionController([state]))
            self.below = state.eviction_policy
            storages, below = (
                [self.storage],
                [types.SimpleNamespace(index=0, config=tagged, type_name="mock")],
            )
        self.prefetch = real.prefetch.PrefetchController(
            [self.l1], [types.SimpleNamespace(index=0, config=tagged)], storages, below, real.PrefetchPolicy()
        )
        self.stores = real.StoreController(self.l1, storages, below, real.StorePolicy())

    def stop(self) -> None:
        for loop in self.loops:
            loop._stop_flag.set()

    def tick(self) -> None:
        for loop in self.loops:
            loop._stop_flag.clear()
            getattr(loop, "eviction_loop", getattr(loop, "_eviction_loop", None))()

    def look_up(self, keys: list[str], start: int = 0) -> tuple[int, int]:
        """Return the leading chunks found, and how many of them the storage brought."""
        self.touch(keys[:start])
        if start == len(keys):
            return start, 0
        group = self.real.api.GroupedObjectKeys(keys[start:], 0, Anything())
        number = self.prefetch.submit_prefetch_request(self.real.api.PrefetchTaskSpec([group]))
        self.prefetch._drain_submission_queue()
        self.prefetch._start_pending_requests()
        while number in self.prefetch._in_flight_requests:
            request = self.prefetch._in_flight_requests[number]
            self.prefetch._advance_request(request, {request.phase: {0}})
        found = self.prefetch.query_prefetch_result(number)
        hit, brought = (cells[0].popcount() for cells in (found.hit_cells, found.l2_hit_cells))
        # the engine has read them
        self.l1.finish_read(keys[start : start + hit])
        return start + hit, brought

    def touch(self, keys: list[str]) -> None:
        self.l1.touch_keys(keys)
        if hasattr(self.storage, "submit_touch"):  # 0.5.6 renews nothing below
            self.storage.submit_touch(keys)

    def store(self, keys: list[str]) -> int:
        reserved = self.l1.reserve_write(keys, [False] * len(keys), None, tag="storage_manager")
        written = [key for key, (error, _) in reserved.items() if error == self.success]
        self.l1.finish_write(written, tag="storage_manager")
        pending = self.stores._listener.pop_pending_keys()
        if pending:
            self.stores._process_new_keys(pending)
            self.stores._drain_l2_store_completions({0} if self.storage is not None else set())
            for number, task in list(self.stores._in_flight_tasks.items()):
                self.stores._advance_request(number, task)
        return len(written)


def order(policy: Any) -> list[str]:
    return [*policy._order] if hasattr(policy, "_order") else [*policy._t1, *policy._t2]


def digest(lines: Iterable[str]) -> str:
    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def run(
    real: types.SimpleNamespace, request: ReplayRequest, policy: str, in_pool: list[int] | None = None
) -> dict[str, Any]:
    """Drive the stream and return figures under the names of the replay.

    ``in_pool``: by request the tokens that the engine's own pool has, whose whole chunks are not looked up.
    """
    server = Server(real, request.capacity_blocks, request.disk_blocks, policy)
    hits, from_disk, stored, second = list[int](), list[int](), 0, 1
    running = list[list[str]]()
    names, chunk, trace = block_keys(request), request.block_size_tokens, request.trace
    for number, n in enumerate(trace.input_tokens.tolist()):
        while second * 10**9 <= int(trace.arrival_ns[number]):
            server.tick()
            second += 1
        if request.window and len(running) == request.window:
            server.touch(running.pop(0))
        keys = [Key(names.label(names.key(number, k))) for k in range(n // chunk)]
        pooled = in_pool[number] if in_pool else 0
        found, brought = server.look_up(keys, pooled // chunk)
        computed, written = max(found * chunk, pooled), found
        while computed < n:
            computed = min(computed + request.step_tokens, n)
            if computed // chunk > written:
                stored += server.store(keys[written : computed // chunk])
                written = computed // chunk
        running.append(keys)
        if not request.window:
            server.touch(running.pop())
        hits.append(found * chunk)
        from_disk.append(brought)
    for keys in running:
        server.touch(keys)
    figures = {
        "per_request_hit_tokens": hits,
        "hit_tokens": sum(hits),
        "per_request_hit_tokens_sha256": sha256("\n".join(map(str, hits)).encode()).hexdigest(),
        "stored_chunks": stored,
        "cpu_evictions": stored - len(server.l1._objects),
        "final_cpu_chunks": len(server.l1._objects),
        "final_cpu_order_sha256": digest(order(server.loops[0]._eviction_policy)),
    }
    if server.storage is not None:
        figures |= {
            "disk_hit_chunks": sum(from_disk),
            "final_disk_chunks": server.storage.debug_get_stored_object_count(),
            "final_disk_order_sha256": digest(order(server.below)),
        }
    return figures


def asked(seed: int) -> tuple[ReplayRequest, str]:
    """Return the stream of a seed with times, a capacity that is at times too small, and a policy."""
    draw = random.Random(seed)
    trace = stream(draw)
    gap = draw.choice([0.05, 0.3, 1.0, 3.0])
    gaps = [draw.choice([0.0, 1.0, draw.expovariate(1 / gap)]) for _ in range(len(trace))]
    times = (np.cumsum(gaps) * 1e9).astype(np.int64)
    longest = int(trace.input_tokens.max()) // 16
    chunks = draw.choice([1, draw.randint(1, longest + 1), longest + draw.randint(0, 4 * longest)])
    step = draw.choice([16, 24, 100, 8192])
    timed = replace(trace, arrival_ns=times)
    window = draw.choice([0, 1, 3, 8])
    policy = draw.choice(["lru", "arc"])
    disk = draw.choice([0, max(1, chunks) * draw.choice([1, 2, 3]), draw.randint(1, 3 * longest + 1)])
    request = ReplayRequest(timed, 16, max(1, chunks), window=window, step_tokens=step, disk_blocks=disk)
    return request, policy


def differs_in_time(real: types.SimpleNamespace, seed: int) -> str | None:
    """Return what is unequal in a timed run of a seed's stream below vLLM's pool, with steps and copies that take next
    to no time; None if nothing is."""
    request, policy = asked(seed)
    draw, trace = random.Random(seed), request.trace
    gaps = np.arange(len(trace)) * 2**22
    trace = replace(
        trace, arrival_ns=trace.arrival_ns + gaps, output_tokens=np.maximum(trace.output_tokens, 2)
    )
    gpu = -(-int((trace.input_tokens + trace.output_tokens).max()) // 16) + draw.randint(0, 60)
    per = draw.choice([1, 1, 2, 5])
    cpu, disk = request.capacity_blocks, request.disk_blocks
    storage = f", disk: {{capacity: {disk * per} blocks}}" if disk else ""
    below = (
        f"capacity: {cpu * per} blocks, policy: {policy}, semantics: lmcache-server, chunk_tokens: {16 * per}"
    )
    edges = "gpu->cpu, cpu->gpu" + (", cpu->disk, disk->cpu" if disk else "")
    text = (
        f"cache: {{block_size: 16}}\nreplica: {{max_num_batched_tokens: {request.step_tokens}, step_time: 'linear:base=1us'}}\n"
        f"tiers: {{gpu: {{capacity: {gpu} blocks}}, cpu: {{{below}}}{storage}}}\n"
        f"channels: {{all: {{bandwidth: 1000PB/s, latency: 0s, edges: [{edges}]}}}}\n"
    )
    scenario = scenario_from_text(text, "s.yaml", Path.cwd(), [])
    done = execute(scenario, trace, RunOptions())
    alone = ReplayRequest(trace, 16, gpu, outputs="computed")
    in_pool = native_requests(alone).vllm(gpu)["hits"].tolist()
    theirs = run(
        real,
        replace(request, trace=in_chunks(trace, per), block_size_tokens=16 * per, window=0),
        policy,
        in_pool,
    )
    columns, moved = done.run.requests, done.run.counters
    found = [columns[f"cached_{tier}_tokens"] for tier in ("cpu", "disk") if tier == "cpu" or disk]
    loaded = [max(0, hit - had) for hit, had in zip(theirs["per_request_hit_tokens"], in_pool, strict=True)]
    blocks = {
        edge: moved.get(f"edge.{edge}.bytes", 0) // (16 * 131_072) for edge in ("gpu->cpu", "disk->cpu")
    }
    both = {
        "pool": (columns["cached_gpu_tokens"].tolist(), in_pool),
        "server": (sum(found).tolist(), loaded),
        "stored": (blocks["gpu->cpu"], theirs["stored_chunks"] * per),
        "brought": (blocks["disk->cpu"], theirs.get("disk_hit_chunks", 0) * per),
        "evicted": (moved["evictions.cpu"], theirs["cpu_evictions"] * per),
    }
    wrong = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
    return (
        f"{policy}, chunks of {per} blocks, {gpu} blocks, {cpu} and {disk} chunks: {wrong}" if wrong else None
    )


def differs(real: types.SimpleNamespace, seed: int) -> str | None:
    """Return how a stream differs, every fourth also as a timed run; None where it is equal."""
    request, policy = asked(seed)
    ours, theirs = REPLAYERS["lmcache-server"](request, policy), run(real, request, policy)
    del theirs["per_request_hit_tokens"]
    wrong = unequal(ours, theirs, policy)
    return wrong or (differs_in_time(real, seed) if seed % 4 == 0 else None)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(compare_streams("LMCache server", load, differs, *sys.argv[1:4]))
