"""LMCache's own server classes, driven over streams with times: L1Manager, the eviction, store and prefetch
controllers, their policies, LRU and ARC.

The controllers' threads are stood in for (the eviction loops run once for each second of the stream, the others at
once), and so is the connector (look up, load, store each step, end); the rest in ``lmcache_server_wheel``.
"""

from __future__ import annotations

import logging
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
from kvcache_sim.replay.engine_requests import block_keys  # noqa: E402
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest  # noqa: E402

from engine_oracles.lmcache_server_wheel import CHUNK_BYTES, Memory, load  # noqa: E402
from engine_oracles.lmcache_tiers import moved_blocks, timed_below_pool  # noqa: E402
from engine_oracles.streams import compare_streams, digest, in_chunks, lines_digest, stream, unequal  # noqa: E402
from engine_oracles.stubs import Anything, Fields, Real  # noqa: E402


class Key(str):
    """A chunk's key, of one model and one rank."""

    model_name, kv_rank, cache_salt = "model", 0, ""


class Server:
    """The manager and its controllers, by the stream's clock; 0 chunks of storage: none."""

    def __init__(self, real: Real, chunks: int, disk_chunks: int, policy: str) -> None:
        manager_config = Fields(
            gds_l1_config=None,
            memory_config=Fields(devdax_path="", use_hugepages=False),
            write_ttl_seconds=600,
            read_ttl_seconds=600,
            tag="",
        )
        self.real, self.success = real, real.L1Error.SUCCESS
        self.l1 = real.L1Manager(manager_config)
        self.l1._memory_manager = Memory(real, chunks)
        # the server's own defaults
        config = Fields(
            eviction_policy=policy.upper(),
            trigger_watermark=0.8,
            eviction_ratio=0.2,
            extra_logging_enabled=False,
        )
        # a loop ends after the pass that it sleeps for
        real.controller.time = Fields(sleep=lambda _: self.stop(), monotonic=float)
        self.loops = [real.controller.L1EvictionController(self.l1, config)]
        self.storage, storages, below = None, [], []
        tagged = Fields(tag="", affinity_tag="")  # read by 0.5.6
        if disk_chunks:
            gib = disk_chunks * CHUNK_BYTES / 2**30
            self.storage = real.Storage(Fields(max_size_gb=gib, mock_bandwidth_gb=1))
            state = real.controller.L2AdapterEvictionState(0, self.storage, config)
            self.loops.append(real.controller.L2EvictionController([state]))
            self.below = state.eviction_policy
            storages, below = (
                [self.storage],
                [Fields(index=0, config=tagged, type_name="mock")],
            )
        self.prefetch = real.prefetch.PrefetchController(
            [self.l1], [Fields(index=0, config=tagged)], storages, below, real.PrefetchPolicy()
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


def run(real: Real, request: ReplayRequest, policy: str, in_pool: list[int] | None = None) -> dict[str, Any]:
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
        "per_request_hit_tokens_sha256": digest(hits),
        "stored_chunks": stored,
        "cpu_evictions": stored - len(server.l1._objects),
        "final_cpu_chunks": len(server.l1._objects),
        "final_cpu_order_sha256": lines_digest(order(server.loops[0]._eviction_policy)),
    }
    if server.storage is not None:
        figures |= {
            "disk_hit_chunks": sum(from_disk),
            "final_disk_chunks": server.storage.debug_get_stored_object_count(),
            "final_disk_order_sha256": lines_digest(order(server.below)),
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


def differs_in_time(real: Real, seed: int) -> str | None:
    """Return what is unequal in a timed run of a seed's stream below vLLM's pool; None if nothing is."""
    request, policy = asked(seed)
    draw, trace = random.Random(seed), request.trace
    gaps = np.arange(len(trace)) * 2**22
    trace = replace(
        trace, arrival_ns=trace.arrival_ns + gaps, output_tokens=np.maximum(trace.output_tokens, 2)
    )
    gpu = -(-int((trace.input_tokens + trace.output_tokens).max()) // 16) + draw.randint(0, 60)
    per = draw.choice([1, 1, 2, 5])
    cpu, disk = request.capacity_blocks, request.disk_blocks
    rules = f"policy: {policy}, semantics: lmcache-server, chunk_tokens: {16 * per}"
    below = f"cpu: {{capacity: {cpu * per} blocks, {rules}}}"
    below += f", disk: {{capacity: {disk * per} blocks}}" if disk else ""
    done, in_pool = timed_below_pool(trace, gpu, below, request.step_tokens)
    coarse = replace(request, trace=in_chunks(trace, per), block_size_tokens=16 * per, window=0)
    theirs = run(real, coarse, policy, in_pool)
    found = [done.requests[f"cached_{tier}_tokens"] for tier in ("cpu", "disk") if tier == "cpu" or disk]
    loaded = [max(0, hit - had) for hit, had in zip(theirs["per_request_hit_tokens"], in_pool, strict=True)]
    both = {
        "pool": (done.requests["cached_gpu_tokens"].tolist(), in_pool),
        "server": (sum(found).tolist(), loaded),
        "stored": (moved_blocks(done, "gpu->cpu"), theirs["stored_chunks"] * per),
        "brought": (moved_blocks(done, "disk->cpu"), theirs.get("disk_hit_chunks", 0) * per),
        "evicted": (done.counters["evictions.cpu"], theirs["cpu_evictions"] * per),
    }
    wrong = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
    return (
        f"{policy}, chunks of {per} blocks, {gpu} blocks, {cpu} and {disk} chunks: {wrong}" if wrong else None
    )


def differs(real: Real, seed: int) -> str | None:
    """Return how a stream differs, every fourth also as a timed run; None where it is equal."""
    request, policy = asked(seed)
    ours, theirs = REPLAYERS["lmcache-server"](request, policy), run(real, request, policy)
    del theirs["per_request_hit_tokens"]
    wrong = unequal(ours, theirs, policy)
    return wrong or (differs_in_time(real, seed) if seed % 4 == 0 else None)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(compare_streams("LMCache server", load, differs, *sys.argv[1:4]))
