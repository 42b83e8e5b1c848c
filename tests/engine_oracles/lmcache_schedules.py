"""vLLM's own Scheduler and LMCacheConnectorV1 with LMCache's adapter, look-up client, engine, storage manager and
LocalCPUBackend, many requests at once, against ``replica.scheduler: vllm`` above ``tiers.cpu.semantics: lmcache``.

Stood in for: the transport between the look-up client and the engine (a call), memory (a chunk is a unit), the GPU's
kernels (blocks are counted; they take a channel's time within their step), pins' time limit. Run as a program:
FOLDER STREAMS FIRST.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from kvcache_sim.serving.settings import ReplicaSettings

from engine_oracles import __main__ as wheels  # from the folder above
from engine_oracles import lmcache_tiers, stubs, vllm_connector, vllm_core, vllm_offload_schedules
from engine_oracles.offload_worker import Channel
from engine_oracles.streams import compare_streams
from engine_oracles.stubs import Real, Record
from engine_oracles.vllm_core import BLOCK
from engine_oracles.vllm_offload_schedules import Step

REAL = lmcache_tiers.REAL | {
    f"lmcache.{name}"
    for name in (
        "integration.vllm.vllm_v1_adapter",
        "v1.cache_engine",
        "v1.lookup_client.abstract_client",
        "v1.lookup_client.lmcache_lookup_client",
        "v1.storage_backend.storage_manager",
        "v1.token_database",
    )
}
_PACKAGES = (
    "lmcache",
    "lmcache.integration",
    "lmcache.integration.vllm",
    "lmcache.v1",
    "lmcache.v1.lookup_client",
)


def load(wheel: Path) -> Real:
    """Import vLLM's classes, and LMCache's from an unpacked wheel."""
    vllm = wheels.unpacked("vllm==0.33.0", ())
    assert vllm is not None, "vLLM's wheel cannot be had from the package index"
    real = vllm_core.load(vllm)
    stubs.name_packages(wheel, *_PACKAGES, "lmcache.v1.storage_backend", kind=vllm_core.Named)
    finder = vllm_core.Finder(("lmcache", "cachetools", "nvtx", "transformers"), REAL)
    sys.meta_path.insert(0, finder)
    sys.path.append(str(wheel))
    tensors = sys.modules["torch"]
    tensors.Tensor, tensors.tensor, tensors.sum = stubs.Tensor, stubs.tensor, np.sum  # type: ignore[attr-defined]
    tensors.long, tensors.bool = np.int64, bool  # type: ignore[attr-defined]
    tensors.arange = lambda *span, dtype: np.arange(*span).view(stubs.Tensor)  # type: ignore[attr-defined]
    tensors.ones = lambda length, **_: np.ones(length, bool).view(stubs.Tensor)  # type: ignore[attr-defined]
    tensors.zeros = lambda length, **_: np.zeros(length, bool).view(stubs.Tensor)  # type: ignore[attr-defined]
    import_module("vllm.version").__version__ = ""  # type: ignore[attr-defined]
    utilities = import_module("lmcache.integration.vllm.utils")
    utilities.extract_mm_features = lambda *_, **__: ([], [])  # type: ignore[attr-defined]
    utilities.extract_request_configs_from_sampling_params = lambda _: None  # type: ignore[attr-defined]
    import_module("lmcache.utils")._lmcache_nvtx_annotate = lambda done: done  # type: ignore[attr-defined]
    adapter = import_module("lmcache.integration.vllm.vllm_v1_adapter")
    storage = import_module("lmcache.v1.storage_backend")
    real.Cpu = storage.local_cpu_backend.LocalCPUBackend
    real.Disk = import_module("lmcache.v1.storage_backend.local_disk_backend").LocalDiskBackend
    real.get_cache_policy = import_module("lmcache.v1.storage_backend.cache_policy").get_cache_policy
    real.Adapter = adapter.LMCacheConnectorV1Impl
    real.CacheEngine = import_module("lmcache.v1.cache_engine").LMCacheEngine
    real.Storage = storage.storage_manager.StorageManager
    real.LookUp = import_module("lmcache.v1.lookup_client.lmcache_lookup_client").LMCacheLookupClient
    real.Tokens = import_module("lmcache.v1.token_database").ChunkedTokenDatabase
    real.stubbed += finder.stubbed
    return real


class Drawn(vllm_offload_schedules.Drawn):
    """As its base, with LMCache's policies, and chunks of up to 256 tokens."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = random.Random(f"lmcache {seed}")
        blocks = self.cpu * self.per
        self.per = draw.choice([1, 1, 2, 3, 4, 8, 16])
        self.cpu = max(1, blocks // self.per)
        self.policy = draw.choice(["lru", "lru", "lfu", "fifo", "mru"])


class Quiet(stubs.Anything):
    """Statistics of a store or a load, which nothing reads."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def __getattr__(self, name: str) -> Any:
        if name.endswith("_time"):
            return 1.0
        return lambda *_, **__: Quiet() if name.startswith(("profile", "on_")) else 1.0


class Worker:
    """The engine in the worker's process, and its copies between the GPU and its memory."""

    def __init__(self, real: Real, drawn: Drawn, counts: Counter[str]) -> None:
        self.copies, self.counts, self.ends = drawn.copies, counts, dict[int, int]()
        self.stored_blocks = self.loaded_blocks = 0
        self.cpu, _ = lmcache_tiers.backends(real, Record(capacity_blocks=drawn.cpu), drawn.policy)
        removed = self.cpu.remove

        def remove(key: Any, force: bool = True) -> bool:
            counts["evicted"] += 1
            return bool(removed(key, force))

        self.cpu.remove = remove
        storage = object.__new__(real.Storage)
        storage.storage_backends = {"LocalCPUBackend": self.cpu}
        storage.allocator_backend, storage._freeze, storage._bypassed_backends = self.cpu, False, set()
        storage._freeze_lock = storage._bypass_lock = threading.RLock()
        self.engine = engine = object.__new__(real.CacheEngine)
        engine._init_failed, engine._health_monitor, engine.kvcache_check_log_enabled = False, None, False
        engine.storage_manager, engine.stats_monitor, engine.gpu_connector = storage, Quiet(), self
        engine.token_database = tokens_of_chunks(real, drawn)
        engine.metadata = Record(get_shapes=lambda tokens: tokens, get_dtypes=lambda: None)
        engine.config = Record(get_extra_config_value=lambda name, default: default)
        engine.is_frozen = lambda: False
        engine.save_only_first_rank = engine.remove_after_retrieve = engine.async_loading = False
        engine.kv_events_enabled = engine.use_layerwise = False
        engine.fmt = engine.retrieve_locations = engine.store_location = None
        engine.lookup_pins = {}
        engine.event_manager = Record(get_event_status=lambda *_: None)

    def batched_to_gpu(self, chunks: Any, starts: Any, ends: Any, **given: Any) -> None:
        """Count the blocks behind those that the pool has."""
        self.loaded_blocks += -(-(max(ends) - given["vllm_cached_tokens"]) // BLOCK)

    def batched_from_gpu(self, chunks: Any, starts: Any, ends: Any, **given: Any) -> None:
        """Count the blocks of the chunks that have memory."""
        self.stored_blocks += sum(-(-(end - start) // BLOCK) for start, end in zip(starts, ends, strict=True))

    def taken(self, blocks: int) -> int:
        """Return the time that some blocks take, one after another."""
        return Channel(self.copies).send(blocks, 0) if blocks else 0


def tokens_of_chunks(real: Real, drawn: Drawn) -> Any:
    """Return LMCache's keys of chunks."""
    made = object.__new__(real.Tokens)
    made.config, made.chunk_size = Record(save_unfull_chunk=False), drawn.per * BLOCK
    made.metadata = Record(model_name="m", world_size=1, worker_id=0, kv_dtype="bf16")
    made.hash_func, made.save_only_first_rank = hash, False
    return made


class Engine(vllm_offload_schedules.Engine):
    """The scheduler of a wheel above LMCache's connector, and a record of their actions."""

    def made(self, kind: Any, settings: ReplicaSettings, pool: tuple[int, bool]) -> Any:
        """Return the scheduler with its connector; the worker's connector is kept."""
        self.worker: Any = Worker(self.real, self.drawn, self.counts)
        _, scheduling = vllm_connector.connector_of()
        scheduling.KVConnectorFactory = Record(
            create_connector=lambda config, kv_cache_config, **_: self.connector(config, "SCHEDULER")
        )
        scheduler = self.built(kind, settings, pool)
        self.side = self.connector(scheduler.vllm_config, "WORKER")
        self.watch(scheduler.connector)
        return scheduler

    def connector(self, configuration: Any, side: str) -> Any:
        """Return vLLM's connector with LMCache's adapter, of the scheduler or of the worker."""
        module = import_module(f"{vllm_core._CONNECTOR}.lmcache_connector")
        role = module.KVConnectorRole[side]
        transfer = configuration.kv_transfer_config
        transfer.kv_role, transfer.get_from_extra_config = "kv_both", lambda name, default: default
        configuration.model_config.get_num_layers = lambda parallel: 1
        outer = object.__new__(module.LMCacheConnectorV1)
        module.KVConnectorBase_V1.__init__(outer, configuration, role, None)
        outer._kv_cache_events = None
        outer._lmcache_engine = own = object.__new__(self.real.Adapter)
        config = Record(
            chunk_size=self.drawn.per * BLOCK,
            save_unfull_chunk=False,
            save_decode_cache=False,
            enable_async_loading=False,
            min_retrieve_tokens=0,
            get_extra_config_value=lambda name, default: default,
        )
        is_worker = side == "WORKER"
        own._parent, own.config, own.kv_role, own.device = outer, config, "kv_both", "cpu"
        own._manager = Record(
            lmcache_engine=self.worker.engine if is_worker else None,
            lookup_client=None if is_worker else self.look_up_client(),
        )
        own._init_connector_state(role, configuration, config)
        own.kv_caches = {"layer": None}
        return outer

    def look_up_client(self) -> Any:
        """Return the scheduler's look-up client, which calls the worker's engine."""
        engine = self.worker.engine

        def answer(message: Any) -> list[bytes]:
            hashes, offsets, name, _ = message
            found = engine.lookup(hashes=hashes, offsets=offsets, lookup_id=name, pin=True)
            return [found.to_bytes(4, "big")]

        client = object.__new__(self.real.LookUp)
        client.transport, client.world_size = Record(send_and_recv_all=answer, world_size=1), 1
        client.reqs_status, client.enable_blending = {}, False
        client.token_database = tokens_of_chunks(self.real, self.drawn)
        return client

    def watch(self, connector: Any) -> None:
        """Note what each request finds at its first admission."""
        allocated, specs = connector.update_state_after_alloc, connector._lmcache_engine.load_specs

        def noted(request: Any, blocks: Any, tokens: int) -> None:
            spec = specs[request.request_id]
            behind = max(0, spec.lmcache_cached_tokens - spec.vllm_cached_tokens) if tokens else 0
            self.hits.setdefault(int(request.request_id), (spec.vllm_cached_tokens, behind))
            self.counts["loads"] += tokens > 0
            allocated(request, blocks, tokens)

        connector.update_state_after_alloc = noted

    def begin(self, step: Step, now: int) -> int:
        """Let a step load; return when it has computed."""
        self.side.bind_connector_metadata(step.out.kv_connector_metadata)
        before = self.worker.loaded_blocks
        if step.out.has_sync_kv_loads:
            self.side.start_load_kv(Record(attn_metadata=True))
        if step.out.num_scheduled_tokens:
            self.steps[step.line] = (now, *self.steps[step.line][1:])
        return now + self.worker.taken(self.worker.loaded_blocks - before) + step.takes

    def over(self, step: Step) -> None:
        """Let a computed step save, and hand over what it brings."""
        before, evicted = self.worker.stored_blocks, self.counts["evicted"]
        if not step.out.has_sync_kv_loads:
            self.side.start_load_kv(Record(attn_metadata=True))
        self.side.wait_for_save()
        self.counts["stores"] += self.worker.stored_blocks > before
        self.counts["stores that evict"] += self.counts["evicted"] > evicted
        self.now += self.worker.taken(self.worker.stored_blocks - before)
        self.arrive()
        self.process(step.out, step.brings)

    def outputs(self, **values: Any) -> Record:
        """Return a step's outputs."""
        return Record(**values)

    def rests(self, step: Step) -> bool:
        """True if a step computes nothing."""
        return not (step.out.num_scheduled_tokens or step.out.preempted_req_ids)


def ours(drawn: Drawn) -> dict[str, Any]:
    """Return the same of this project's scheduler."""
    return vllm_offload_schedules.ours(drawn, "lmcache")


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, None where it is equal."""
    drawn = Drawn(seed)
    return vllm_offload_schedules.compared(Engine(real, drawn), lambda: ours(drawn))


if __name__ == "__main__":
    code = compare_streams("LMCache schedules", load, differs, *sys.argv[1:4])
    print(vllm_offload_schedules.met())
    sys.exit(code)
