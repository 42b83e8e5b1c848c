"""KV events in MessagePack: maps with a ``type`` (vLLM 0.33), or arrays with the tag first (before)."""

from __future__ import annotations

import msgspec

Hash = int | bytes

#: The media that vLLM names, by tier.
MEDIA = {"gpu": "GPU", "cpu": "CPU"}
OTHER_MEDIUM = "STORAGE"


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True, frozen=True):
    """Consecutive blocks stored on a tier; defaults after ``lora_name`` are left out."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[str, ...] | None] | None = None
    group_idx: int | None = None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True, frozen=True):
    """A block that left a tier."""

    block_hashes: list[Hash]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, frozen=True):
    """Every block has left every tier."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class Batch(msgspec.Struct, array_like=True, omit_defaults=True, frozen=True):
    """The events of one step: the date in seconds, and the rank of the machine."""

    ts: float
    events: list[Event]
    data_parallel_rank: int | None = None


def packed(batch: Batch, layout: str) -> bytes:
    """Return an encoded batch."""
    if layout == "map":
        return msgspec.msgpack.encode(batch)
    events = [_row(event) for event in batch.events]
    return msgspec.msgpack.encode([batch.ts, events, batch.data_parallel_rank])


def _row(event: Event) -> list[object]:
    tag = type(event).__name__
    return [tag, *(getattr(event, name) for name in event.__struct_fields__)]
