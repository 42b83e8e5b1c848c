"""What the options of ``kvsim cachesim`` give a cache: blocks, blocks on the host, chunks of each tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.replay.request import StorageRoom
from kvcache_sim.report.curve.sizes import parse_capacity

#: LMCache's own default.
_CHUNK_TOKENS = 256


@dataclass(frozen=True, slots=True)
class RoomOptions:
    """The options as they were written; 0 and "" are options that were not given."""

    capacity: str = ""
    block_size: int = 0
    host_capacity: str = ""
    write_policy: str = ""
    storage: str = ""
    prefetch_threshold: int | None = None
    chunk_tokens: int = 0
    cpu_chunks: int = 0
    cpu_policy: str = ""
    disk_chunks: int = 0
    secondary: bool = False


def room_of(
    policy: str, family: str, options: RoomOptions, trace_block_size: int, weights: tuple[int, int]
) -> dict[str, Any]:
    """Return the room of a ``ReplayRequest`` by the names of its fields; raises ``UsageError``.

    ``family`` is the policy's; ``weights`` are the bytes of a token and, where groups share a pool, of a
    block of it: what turns sizes into blocks; 0 is not known.
    """
    for option, given in _useless(family, options).items():
        if given:
            raise UsageError(f"has no effect with --policy {policy}", where=option)
    if family == "lmcache":
        if not options.cpu_chunks:
            raise UsageError("chunks of the CPU tier are missing", where="--cpu-chunks", expected="≥ 1")
        return {
            "block_size_tokens": options.chunk_tokens or _CHUNK_TOKENS,
            "capacity_blocks": options.cpu_chunks,
            "disk_blocks": options.disk_chunks,
        }
    if not options.capacity:
        raise UsageError(
            "a capacity is missing", where="--capacity", expected="blocks, '2097152 tokens', or a size"
        )
    size = options.block_size or trace_block_size
    token_bytes, block_bytes = weights

    def blocks(text: str, where: str) -> int:
        return parse_capacity(text, block_bytes or size * token_bytes, where, 0 if block_bytes else size)

    room: dict[str, Any] = {
        "block_size_tokens": size,
        "capacity_blocks": blocks(options.capacity, "--capacity"),
    }
    if options.cpu_chunks:
        room["cpu_blocks"] = options.cpu_chunks
        room["cpu_policy"] = options.cpu_policy or "lru"
        room["secondary"] = options.secondary
    elif options.secondary:
        raise UsageError("has no effect without --cpu-chunks", where="--secondary-tier")
    elif options.cpu_policy:
        raise UsageError("has no effect without --cpu-chunks", where="--cpu-policy")
    if options.host_capacity:
        room["host_blocks"] = blocks(options.host_capacity, "--host-capacity")
        room["write_policy"] = options.write_policy or "write_through"
    elif options.write_policy or options.storage:
        option = "--write-policy" if options.write_policy else "--storage"
        raise UsageError("has no effect without --host-capacity", where=option)
    if options.storage:
        bound = None if options.storage == "unbounded" else blocks(options.storage, "--storage")
        threshold = options.prefetch_threshold
        room["storage"] = StorageRoom(bound) if threshold is None else StorageRoom(bound, threshold)
    elif options.prefetch_threshold is not None:
        raise UsageError("has no effect without --storage", where="--prefetch-threshold")
    return room


def _useless(family: str, options: RoomOptions) -> dict[str, bool]:
    """Return options, and whether each was given to a family that has no use for it."""
    chunks, host = family == "lmcache", family == "sglang-unified"
    return {
        "--capacity": bool(options.capacity) and chunks,
        "--block-size": options.block_size != 0 and chunks,
        "--host-capacity": bool(options.host_capacity) and not host,
        "--write-policy": bool(options.write_policy) and not host,
        "--storage": bool(options.storage) and not host,
        "--prefetch-threshold": options.prefetch_threshold is not None and not host,
        "--chunk-tokens": options.chunk_tokens != 0 and not chunks,
        "--cpu-chunks": options.cpu_chunks != 0 and not chunks and family != "vllm",
        "--cpu-policy": bool(options.cpu_policy) and family != "vllm",
        "--secondary-tier": options.secondary and family != "vllm",
        "--disk-chunks": options.disk_chunks != 0 and not chunks,
    }
