"""LMCache's server classes from their wheel, and stand-ins for torch, native locks and bitmaps, metrics, threads.

The allocator's free list (AddressManager) and the storage (MockL2Adapter) are the wheel's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine_oracles import stubs
from engine_oracles.stubs import Anything, Fields, Real

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

    def __init__(self, real: Real, chunks: int) -> None:
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
        return Fields(call_soon_threadsafe=lambda do, *on: do(*on))

    @staticmethod
    async def sleep(_: float) -> None: ...


def load(wheel: Path) -> Real:
    """Import the classes from an unpacked wheel; everything else of it, and torch, is stood in for."""
    stubs.name_packages(
        wheel,
        "lmcache",
        "lmcache.v1",
        _DISTRIBUTED,
        f"{_DISTRIBUTED}.storage_controllers",
        f"{_DISTRIBUTED}.l2_adapters",
    )
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
    mock_l2_adapter.threading = Fields(Lock=threading.Lock, Thread=lambda **_: Fields(start=lambda: None))
    return Real(
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
