"""HiCache's storage in SGLang's own classes: the cache's prefetch and backup, the controller's queues, the
evictor.

Stood in for: threads (what is queued is done at once), pages' bytes and files (their keys and sizes are
there), the
hash's C++ (the same chain in Python), the scheduler's few lines that ask for a prefetch when a request comes.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from queue import Queue
from typing import Any

from kvcache_sim.replay.request import StorageCapacity

from engine_oracles import stubs
from engine_oracles.stubs import Real

_SRT = "sglang.srt."
REAL = frozenset(
    _SRT + name
    for name in (
        "managers.cache_controller",
        "mem_cache.hybrid_cache.hybrid_cache_controller",
        "mem_cache.storage.file.lru_file_evictor",
        "mem_cache.storage_prefetch",
    )
)
PACKAGES = tuple(
    _SRT + name
    for name in ("managers", "mem_cache.hybrid_cache", "mem_cache.storage", "mem_cache.storage.file")
)
#: Bytes of a page's file.
_PAGE_BYTES = 10


def load() -> Real:
    """Import the classes; the stand-ins are installed."""
    from sglang.srt.managers.cache_controller import HiCacheController, PrefetchAck
    from sglang.srt.mem_cache import storage_prefetch, utils
    from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
    from sglang.srt.mem_cache.storage.file.lru_file_evictor import LRUFileEvictor

    utils.get_native_hash = chained
    return Real(
        Retries=storage_prefetch.StoragePrefetchRetries,
        Base=HiCacheController,
        Ack=PrefetchAck,
        Hybrid=HybridCacheController,
        Evictor=LRUFileEvictor,
    )


def chained(token_ids: Any, prior: bytes | None, page: int) -> list[str]:
    """Return the hash of each whole page, the ones before it included."""
    tokens = list(getattr(token_ids, "token_ids", token_ids))[: len(token_ids)]
    hashes, before = [], prior or b""
    for start in range(0, len(tokens) // page * page, page):
        before = sha256(before + repr(tokens[start : start + page]).encode()).digest()
        hashes.append(before.hex())
    return hashes


class Files:
    """``HiCacheFile`` over its own evictor: which keys there are, and the order of their use."""

    def __init__(self, real: Real, pages: int | None) -> None:
        self.keys, self.written, self.evicted = set[str](), 0, 0
        config = {"max_size": (pages or 0) * _PAGE_BYTES, "min_free_space": 0}
        self.evictor = stubs.known(
            real.Evictor,
            "/nowhere",
            owned_suffixes=("",),
            config_suffix="",
            is_mla_model=False,
            tp_rank=0,
            extra_config=config,
            on_evict=self._gone,
        )

    def _gone(self, key: str) -> None:
        self.keys.remove(key)
        self.evicted += 1

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        return next((at for at, key in enumerate(keys) if key not in self.keys), len(keys))

    def set(self, keys: list[str], *_: Any) -> bool:
        for key in keys:
            if key in self.keys:
                self.evictor.touch(key, "/nowhere")
                continue
            if not self.evictor.reserve(key, _PAGE_BYTES, key=key):
                return False
            self.keys.add(key)
            self.written += 1
            self.evictor.commit(key)
        return True

    def get(self, operation: Any, keys: list[str], *_: Any) -> int:
        for at, key in enumerate(keys):
            if key not in self.keys:
                return at
            self.evictor.touch(key, "/nowhere")
        return len(keys)


def attach(
    real: Real, cache: Any, cc: Any, files: Files, threshold_tokens: int, queue: Callable[[], Any]
) -> None:
    """Give a cache and its controller a storage, and the queues of the controller's threads."""
    cc.enable_storage, cc.host_memory_mode, cc.page_size = True, "cache", cache.page_size
    cc.prefetch_capacity_limit = int(0.5 * cc.mem_pool_host.logical_size)
    cc.prefetch_tokens_occupied, cc.pp_prefetch_command_group, cc.pp_prefetch_decisions = 0, None, {}
    for name in ("prefetch_queue", "prefetch_hit_queue", "prefetch_buffer", "prefetch_sync_queue"):
        setattr(cc, name, queue())
    for name in ("ack_prefetch_queue", "backup_queue", "ack_backup_queue", "host_mem_release_queue"):
        setattr(cc, name, queue())
    cc.extra_host_mem_release_queues, cc.storage_backend = {}, files
    cc.page_set_func, cc.page_get_func = files.set, files.get
    cache.enable_storage = cache.tree_core.enable_storage = True
    cache.prefetch_stop_policy = "wait_complete"
    cache.prefetch_threshold = max(threshold_tokens, cache.page_size)
    cache.hicache_storage_pass_prefix_keys = cache.enable_storage_metrics = False
    cache.storage_metrics_collector, cache.storage_prefetch_retries = None, real.Retries()
    for name in ("ongoing_prefetch", "ongoing_backup", "_storage_prefetch_wait"):
        setattr(cache, name, {})
    cache._storage_prefetch_hit_remaining_by_reqid = {}
    cache.prefetch_loaded_tokens_by_reqid, cache.prefetch_loaded_storage_start_by_reqid = {}, {}
    cache._prefetch_outcome_stats = _Zeros()


class Storage:
    """The storage of one cache, and the work of the controller's threads."""

    def __init__(self, cache: Any, real: Real, capacity: StorageCapacity, stand_in: Any) -> None:
        self.cache, self.real, self.files = cache, real, Files(real, capacity.blocks)
        plain = stand_in
        kind = type("Controller", (type(plain), real.Hybrid), {})
        cc = self.controller = cache.cache_controller = object.__new__(kind)
        cc.__dict__.update(plain.__dict__)
        attach(real, cache, cc, self.files, capacity.prefetch_threshold_tokens, Queue)
        write = cache.write_backup_storage
        cache.write_backup_storage = lambda node: (write(node), self._write())

    def _drain(self) -> None:
        self.cache._drain_storage_control_queues_impl(None, None, None, None, None, False)

    def _write(self) -> None:
        """Do the backup thread's work at once."""
        cc = self.controller
        while not cc.backup_queue.empty():
            operation = cc.backup_queue.get()
            self.real.Base._page_backup(cc, operation)
            cc.ack_backup_queue.put(operation)
        self._drain()

    def prefetch(self, handle: Any, found: Any, tokens: Any) -> int:
        """Start a prefetch as the scheduler does, do the threads' work, and return the number of
        prefetched tokens."""
        cache, cc, node = self.cache, self.controller, found.last_host_node
        if not (cache.is_backuped(node) or cache.is_root(node)):
            return 0
        matched = found.device_prefix_len + found.host_hit_length
        cache.prefetch_from_storage(
            handle,
            node,
            tokens[matched:-1],
            cache.get_last_hash_value(node),
            None,
            matched_prefix_tokens=tokens[:matched],
        )
        while not cc.prefetch_queue.empty():
            operation = cc.prefetch_queue.get()
            operation.hash_value, operation.storage_hit_count = cc._storage_hit_query(operation)
            cc.prefetch_hit_queue.put(operation)
        self._drain()
        while not cc.prefetch_buffer.empty():
            operation = cc.prefetch_buffer.get()
            self.real.Base._page_transfer(cc, operation)
            done = self.real.Ack(rid=operation.request_id, completed_req=True, operation=operation)
            cc.prefetch_sync_queue.put(done)
        while not cc.prefetch_sync_queue.empty():
            cc.ack_prefetch_queue.put(cc.prefetch_sync_queue.get())
        self._drain()
        assert cache.check_prefetch_progress(handle)
        assert cc.prefetch_tokens_occupied == 0
        return int(cache.pop_prefetch_loaded_span(handle)[0])


class _Zeros(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0
