"""SGLang's own UnifiedRadixCache on its own Python tree core, driven over a stream.

Stood in for: torch, kernels, pools (integer counters), the cache controller (writes and loads are done at the
next
poll), sessions, metrics, ranks; for the storage see ``sglang_storage``. Decisions are the wheel's.
"""

from __future__ import annotations

import sys
from array import array
from pathlib import Path
from typing import Any

from kvcache_sim.replay.request import ReplayRequest

from engine_oracles import sglang_storage, stubs
from engine_oracles.streams import digest, lines_digest, tokens_of
from engine_oracles.stubs import Fields, Real, Rows

_CACHE = "sglang.srt.mem_cache."
REAL = frozenset(
    _CACHE + name
    for name in (
        "base_prefix_cache",
        "cache_init_params",
        "evict_policy",
        "hicache_storage",
        "radix_cache",
        "unified_cache",
        "unified_cache.cache_action",
        "unified_cache.component_type",
        "unified_cache.components",
        "unified_cache.components.base",
        "unified_cache.components.full",
        "unified_cache.unified_tree_core",
        "unified_cache.unified_tree_core_interface",
        "unified_radix_cache",
        "utils",
    )
)


def load(wheel: Path) -> Real:
    """Import the classes from an unpacked wheel; everything else of it, and torch, is stood in for."""
    stubs.name_packages(wheel, "sglang", "sglang.srt", "sglang.srt.mem_cache", *sglang_storage.PACKAGES)
    sys.path.append(str(wheel))
    finder = stubs.install(("torch", "sglang"), REAL | sglang_storage.REAL)
    return Real(storage=sglang_storage.load(), stubbed=finder.stubbed, **vars(classes()))


def classes() -> Real:
    """Return the tree's classes; the stand-ins are installed."""
    from sglang.srt.mem_cache import base_prefix_cache, radix_cache, unified_radix_cache
    from sglang.srt.mem_cache.unified_cache import components
    from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeCore

    return Real(
        base=base_prefix_cache,
        RadixKey=radix_cache.RadixKey,
        UnifiedRadixCache=unified_radix_cache.UnifiedRadixCache,
        FullComponent=components.FullComponent,
        FULL=components.ComponentType.FULL,
        UnifiedTreeCore=UnifiedTreeCore,
    )


class Capacity:
    """A pool as a number of free tokens."""

    def __init__(self, tokens: int, page: int) -> None:
        self.free_tokens, self.device, self.anchor_entry = tokens, "cpu", self
        self.logical_size, self.page_size = tokens, page
        self.host_pool, self.shared_allocation_domain, self.host_evict_fn = self, None, None

    def available_size(self) -> int:
        return self.free_tokens

    def alloc(self, tokens: int) -> Any:
        if self.free_tokens < tokens:
            return None
        self.free_tokens -= tokens
        return stubs.tensor([0] * tokens)

    def free_segment(self, indices: Any, start_pos: int = 0) -> None:
        self.free_tokens += len(indices)

    def free(self, indices: Any, pool: Any = None) -> None:
        self.free_tokens += len(indices)

    def mamba_full_cache_donor(self) -> None:
        return None


class Ack:
    """A transfer that has ended."""

    num_tokens_by_pool, num_bytes, timing_enabled = None, 0, False

    def __init__(self, node_id: int) -> None:
        self.node_ids, self.finish_event = [node_id], self

    def synchronize(self) -> None: ...


class Controller:
    """Copies between host and device: writes take host memory or are refused, loads take device memory."""

    def __init__(self, write_policy: str, device: Capacity, host: Capacity) -> None:
        self.write_policy, self.device, self.mem_pool_host = write_policy, device, host
        self.ack_write_queue: list[Ack] = []
        self.ack_load_queue: list[Ack] = []
        self.written = self.loaded = 0

    def _take(self, capacity: Capacity, tokens: int) -> Any:
        if capacity.free_tokens < tokens:
            return None
        capacity.free_tokens -= tokens
        return stubs.tensor([0] * tokens)

    def write(self, values: Any, node_id: int, **_: Any) -> Any:
        taken = self._take(self.mem_pool_host, len(values))
        if taken is not None:
            self.written += len(values)
            self.ack_write_queue.append(Ack(node_id))
        return taken

    def load(self, host_indices: Any, node_id: int, **_: Any) -> Any:
        taken = self._take(self.device, len(host_indices))
        if taken is not None:
            self.ack_load_queue.append(Ack(node_id))
        return taken

    def start_writing(self) -> None: ...


def unified(real: Real, strategy: str, device: Any, host: Any, controller: Any) -> Any:
    """Return the wheel's tree over a device, and over a host with its controller; None: without HiCache."""
    name, *reported = strategy.split(":")
    config = dict(zip(("threshold", "next_prompt_estimate"), map(int, reported), strict=False)) or None
    params = Fields(
        page_size=device.page_size,
        is_eagle=False,
        enable_session_radix_cache=False,
        eviction_policy=name,
        eviction_policy_config=config,
        token_to_kv_pool_allocator=device,
        enable_kv_cache_events=False,
        dynamo_kv_event_format=False,
        kv_event_lora_names=None,
    )
    cache = object.__new__(real.UnifiedRadixCache)
    cache.disable = cache.is_swa_enabled = cache.is_mamba_enabled = False
    cache.linker = cache.buffer_pipeline = cache.metrics_collector = cache.insert_session_id = None
    cache.enable_session_radix_cache, cache.host_memory_mode = False, "cache"
    cache.token_to_kv_pool_allocator, cache.host_pool_group = device, host
    cache.sidecar_pool_specs, cache.load_back_threshold, cache.pp_rank = [], 10, 0
    cache.ongoing_write_through, cache.ongoing_load_back = {}, {}
    full = real.FullComponent(cache, params)
    cache.components, cache.tree_components = {real.FULL: full}, (real.FULL,)
    cache._components_tuple = (full,)
    core = cache.tree_core = real.UnifiedTreeCore(params, cache.components)
    full.tree_core, cache.cache_controller = core, controller
    if controller is not None:
        full._full_kv_pool_host = host
        core.set_hicache_enabled()
        core.write_through_threshold = 1 if controller.write_policy == "write_through" else 2
        core.is_write_back = controller.write_policy == "write_back"
    return cache


class Engine:
    """One cache with its pools, and the steps of requests."""

    def __init__(self, real: Real, request: ReplayRequest, strategy: str) -> None:
        self.real, self.page, self.evicted = real, request.block_size_tokens, 0
        self.capacity = Capacity(request.capacity_blocks * self.page, self.page)
        self.host = Capacity(request.host_blocks * self.page, self.page)
        write = request.write_policy
        plain = Controller(write, self.capacity, self.host) if write else None
        self.cache = unified(real, strategy, self.capacity, self.host, plain)
        self.core = self.cache.tree_core
        self.storage = None
        if request.storage is not None:
            self.storage = sglang_storage.Storage(self.cache, real.storage, request.storage, plain)

    def poll(self) -> None:
        """End every write and load."""
        controller = self.cache.cache_controller
        if controller is None:
            return
        self.cache.writing_check(write_back=True)
        self.cache.loading_check(finish_count=len(controller.ack_load_queue))

    def match(self, tokens: array[int]) -> Any:
        key = self.real.RadixKey(tokens, None)
        return self.cache._match_tree(self.real.base.MatchPrefixParams(key=key))

    def evict(self, tokens: int) -> None:
        """Free the given number of tokens more, if any."""
        if tokens > 0:
            before = self.capacity.free_tokens
            self.cache.evict_for_alloc(self.real.base.EvictParams(num_tokens=tokens))
            self.evicted += self.capacity.free_tokens - before

    def take(self, tokens: int) -> None:
        """Take free tokens; there must be enough."""
        assert tokens <= self.capacity.free_tokens
        self.capacity.free_tokens -= tokens

    @property
    def slack(self) -> int:
        return self.page if self.page > 1 else 0

    def paged(self, tokens: int) -> int:
        return -(-tokens // self.page) * self.page


class Running:
    """A request as ``checkpoint_into_tree`` reads it."""

    def __init__(self, engine: Engine, trace: Any, request: int, total: int) -> None:
        self.engine, self.n, self.total = engine, int(trace.input_tokens[request]), total
        self.full_untruncated_fill_ids = array("q", tokens_of(trace, request, total))
        self.origin_input_ids = self.full_untruncated_fill_ids[: self.n]
        self.priority = self.session_id = self.kv_rotation_base = self.extra_key = self.cache_salt = None
        self.kv = Fields(req_pool_idx=0, cache_protected_len=0, cache_inserted_len=0, mamba_pool_idx=None)
        self.lock: Any = None
        self.last_node = self.rid = None

    def finished(self) -> bool:
        return False

    def look_up(self) -> Any:
        """Match all but the last token and lock what the device has."""
        engine = self.engine
        engine.cache.unlock(self.lock)
        found = engine.match(self.origin_input_ids[:-1])
        self.lock = engine.cache.lock(found.last_device_node)
        self.last_node, self.kv.cache_protected_len = found.last_device_node, found.device_prefix_len
        return found

    def prefetch(self, number: int) -> int:
        """Bring what a storage has to the host, as the request comes."""
        engine = self.engine
        if engine.storage is None or engine.paged(self.total) + engine.slack > engine.capacity.logical_size:
            return 0
        handle = engine.real.base.CacheRequestHandle(str(number), 0)
        found = engine.match(self.origin_input_ids[:-1])
        return engine.storage.prefetch(handle, found, self.origin_input_ids)

    def lacks_capacity(self) -> bool:
        engine = self.engine
        need = engine.paged(self.total) - self.kv.cache_protected_len + engine.slack
        return engine.capacity.free_tokens + engine.core.full_evictable_size() < need

    def load(self, found: Any) -> int:
        """Load what the host has beyond the device."""
        engine = self.engine
        if not found.host_hit_length:
            return 0
        before = engine.capacity.free_tokens
        base = engine.real.base
        params = base.InitLoadBackParams(
            best_match_node=found.best_match_node,
            host_hit_length=found.host_hit_length,
            mem_quota=None,
            req=self,
        )
        loaded, node = engine.cache.init_load_back(params)
        engine.evicted += engine.capacity.free_tokens - before + loaded
        if loaded:
            lock = engine.cache.lock(node)
            engine.cache.unlock(self.lock)
            self.lock, self.last_node = lock, node
            self.kv.cache_protected_len += loaded
        engine.poll()
        return int(loaded)

    def checkpoint(self, tokens: int) -> None:
        self.engine.cache.req_to_token_pool = Rows(len(self.full_untruncated_fill_ids))
        self.engine.cache.checkpoint_into_tree(self, up_to=tokens)
        self.engine.poll()

    def compute(self) -> None:
        """Prefill, check the prompt in, decode."""
        engine, held = self.engine, self.kv.cache_protected_len
        engine.evict(self.n - held + engine.slack - engine.capacity.free_tokens)
        engine.take(engine.paged(self.n) - held)
        self.checkpoint(self.n)
        for position in range(self.n, self.total):
            engine.evict(engine.page - engine.capacity.free_tokens)
            if position % engine.page == 0:
                engine.take(engine.page)

    def finish(self) -> None:
        self.checkpoint(self.total)
        self.engine.capacity.free_tokens += self.engine.paged(self.total) - self.kv.cache_protected_len
        self.engine.cache.unlock(self.lock)


def run(real: Real, request: ReplayRequest, strategy: str) -> dict[str, Any]:
    """Drive the stream and return figures under the names of ``replay_sglang_unified``."""
    engine = Engine(real, request, strategy)
    trace, running = request.trace, list[Running]()
    hits, loads, prefetched, forced = list[int](), list[int](), list[int](), 0
    for number, n in enumerate(trace.input_tokens.tolist()):
        total = n + max(int(trace.output_tokens[number]) - 1, 0)
        if request.window and len(running) == request.window:
            running.pop(0).finish()
        now = Running(engine, trace, number, total)
        prefetched.append(now.prefetch(number))
        found, ended = now.look_up(), -1
        while ended and now.lacks_capacity() and running:
            ended = 0
            while now.lacks_capacity() and running:
                running.pop(0).finish()
                ended += 1
            forced += ended
            if request.write_policy and not now.lacks_capacity():
                found = now.look_up()
        if now.lacks_capacity():
            engine.cache.unlock(now.lock)
            hits.append(-1)
            loads.append(0)
            continue
        hits.append(found.device_prefix_len)
        loads.append(now.load(found))
        now.compute()
        running.append(now)
        if not request.window:
            running.pop(0).finish()
    while running:
        running.pop(0).finish()
    result = figures(engine, request, hits, loads, forced)
    if engine.storage is not None:
        files = engine.storage.files
        result["per_request_prefetched_tokens_sha256"] = digest(prefetched)
        result["storage_written_tokens"] = files.written * engine.page
        result["storage_evicted_tokens"] = files.evicted * engine.page
        result["final_storage_tokens"] = len(files.keys) * engine.page
    return result


def figures(
    engine: Engine, request: ReplayRequest, hits: list[int], loads: list[int], forced: int
) -> dict[str, Any]:
    """Return what the tree and the pools hold, and the order in which leaves would go."""
    core, worth = engine.core, engine.core.eviction_strategy.get_priority
    leaves = []
    for node in sorted(core.evictable_device_leaves, key=worth):
        end, above = 0, node
        while above.parent is not None:
            end, above = end + len(above.key), above.parent
        leaves.append(f"{end}:{node.key.token_ids[len(node.key) - engine.page]}")
    result = {
        "hit_tokens": sum(hit for hit in hits if hit >= 0),
        "forced_finishes": forced,
        "evicted_tokens": engine.evicted,
        "final_free_tokens": engine.capacity.free_tokens,
        "final_tree_tokens": core.full_evictable_size(),
        "final_leaves": len(leaves),
        "final_leaf_eviction_order_sha256": lines_digest(leaves),
        "per_request_hit_tokens_sha256": digest(hits),
    }
    if request.write_policy:
        result["loaded_tokens"] = sum(loads)
        result["per_request_loaded_tokens_sha256"] = digest(loads)
        result["written_tokens"] = engine.cache.cache_controller.written
        result["final_host_free_tokens"] = engine.host.free_tokens
    return result
