"""LMCache's own server classes, driven over streams with times: L1Manager, L1EvictionController, LRU and ARC.

Real too: the allocator's free list (AddressManager). Stood in for: torch, native locks, metrics, the controller's
thread (its loop runs once for each second of the stream) and the connector (look up, store each step, end).
"""

from __future__ import annotations

import logging
import random
import sys
import types
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
from kvcache_sim.replay.engine_requests import block_keys  # noqa: E402
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest  # noqa: E402

from engine_oracles import stubs  # noqa: E402
from engine_oracles.streams import stream  # noqa: E402

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

    def set_l1_manager(self, _: int) -> None: ...

    def get_size(self) -> int:
        return self.size


def load(wheel: Path) -> types.SimpleNamespace:
    """Import the classes from an unpacked wheel; everything else of it, and torch, is stood in for."""
    packages = ("lmcache", "lmcache.v1", _DISTRIBUTED, f"{_DISTRIBUTED}.storage_controllers")
    for package in packages:
        module = types.ModuleType(package)
        module.__path__ = [str(wheel / package.replace(".", "/"))]
        sys.modules[package] = module
    finder = stubs.install(("torch", "lmcache", "nvtx"), REAL)
    from lmcache.v1 import memory_management
    from lmcache.v1.distributed import error, l1_manager
    from lmcache.v1.distributed.storage_controllers import eviction_controller

    l1_manager.TTLLock = Lock
    return types.SimpleNamespace(
        L1Manager=l1_manager.L1Manager,
        L1Error=error.L1Error,
        controller=eviction_controller,
        AddressManager=memory_management.AddressManager,
        stubbed=finder.stubbed,
    )


class Server:
    """The manager and its eviction controller, by the stream's clock."""

    def __init__(self, real: types.SimpleNamespace, chunks: int, policy: str) -> None:
        manager_config = types.SimpleNamespace(
            gds_l1_config=None,
            memory_config=types.SimpleNamespace(devdax_path="", use_hugepages=False),
            write_ttl_seconds=600,
            read_ttl_seconds=600,
            tag="",
        )
        self.l1, self.success = real.L1Manager(manager_config), real.L1Error.SUCCESS
        self.l1._memory_manager = Memory(real, chunks)
        # the server's own defaults
        config = types.SimpleNamespace(
            eviction_policy=policy.upper(),
            trigger_watermark=0.8,
            eviction_ratio=0.2,
            extra_logging_enabled=False,
        )
        # the loop ends after the pass that it sleeps for
        real.controller.time = types.SimpleNamespace(
            sleep=lambda _: self.loop._stop_flag.set(), monotonic=float
        )
        self.loop = real.controller.L1EvictionController(self.l1, config)

    def tick(self) -> None:
        self.loop._stop_flag.clear()
        self.loop.eviction_loop()

    def look_up(self, keys: list[str]) -> int:
        read = self.l1.reserve_read(keys)
        found = next((at for at, key in enumerate(keys) if read[key][0] != self.success), len(keys))
        self.l1.finish_read([key for key in keys if read[key][0] == self.success])
        self.l1.touch_keys(keys[:found])
        return found

    def store(self, keys: list[str]) -> int:
        reserved = self.l1.reserve_write(keys, [False] * len(keys), None, tag="storage_manager")
        written = [key for key, (error, _) in reserved.items() if error == self.success]
        self.l1.finish_write(written, tag="storage_manager")
        return len(written)

    def order(self) -> list[str]:
        policy = self.loop._eviction_policy
        return [*policy._order] if hasattr(policy, "_order") else [*policy._t1, *policy._t2]


def run(real: types.SimpleNamespace, request: ReplayRequest, policy: str) -> dict[str, Any]:
    """Drive the stream and return figures under the names of the replay."""
    server, hits, stored, second = Server(real, request.capacity_blocks, policy), list[int](), 0, 1
    running = list[list[str]]()
    names, chunk, trace = block_keys(request), request.block_size_tokens, request.trace
    for number, n in enumerate(trace.input_tokens.tolist()):
        while second * 10**9 <= int(trace.arrival_ns[number]):
            server.tick()
            second += 1
        if request.window and len(running) == request.window:
            server.l1.touch_keys(running.pop(0))
        keys = [names.label(names.key(number, k)) for k in range(n // chunk)]
        found = server.look_up(keys)
        computed, written = found * chunk, found
        while computed < n:
            computed = min(computed + request.step_tokens, n)
            if computed // chunk > written:
                stored += server.store(keys[written : computed // chunk])
                written = computed // chunk
        running.append(keys)
        if not request.window:
            server.l1.touch_keys(running.pop())
        hits.append(found * chunk)
    for keys in running:
        server.l1.touch_keys(keys)
    order = server.order()
    return {
        "hit_tokens": sum(hits),
        "per_request_hit_tokens_sha256": sha256("\n".join(map(str, hits)).encode()).hexdigest(),
        "stored_chunks": stored,
        "cpu_evictions": stored - len(server.l1._objects),
        "final_cpu_chunks": len(server.l1._objects),
        "final_cpu_order_sha256": sha256("".join(f"{key}\n" for key in order).encode()).hexdigest(),
    }


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
    return ReplayRequest(timed, 16, max(1, chunks), window=window, step_tokens=step), draw.choice(
        ["lru", "arc"]
    )


def main() -> int:
    logging.disable(logging.WARNING)
    real = load(Path(sys.argv[1]))
    streams, first = int(sys.argv[2]), int(sys.argv[3])
    print(f"LMCache server: stood in for {', '.join(real.stubbed)}")
    for seed in range(first, first + streams):
        request, policy = asked(seed)
        ours, theirs = REPLAYERS["lmcache-server"](request, policy), run(real, request, policy)
        wrong = {name: (ours[name], value) for name, value in theirs.items() if ours[name] != value}
        if wrong:
            print(f"LMCache server: stream {seed} under {policy} differs (ours, theirs): {wrong}")
            return 1
    print(f"LMCache server: {streams} of {streams} streams equal, from {first} on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
