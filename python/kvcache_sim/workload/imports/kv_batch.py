"""Decoder of KV-event batches as engines publish them: maps or arrays, hashes as numbers or bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Name = int | str
_FIELDS = {
    "BlockStored": ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"),
    "BlockRemoved": ("block_hashes", "medium"),
    "AllBlocksCleared": (),
}
_KINDS: dict[str, Literal["stored", "removed", "cleared"]] = {
    "BlockStored": "stored",
    "BlockRemoved": "removed",
    "AllBlocksCleared": "cleared",
}
_GPU = "GPU"


@dataclass(frozen=True, slots=True)
class KvEvent:
    """An event of some blocks of one medium; ``parent`` precedes the first of them."""

    kind: Literal["stored", "removed", "cleared"]
    hashes: tuple[Name, ...] = ()
    parent: Name | None = None
    block_size: int = 0
    medium: str = _GPU
    #: The KV cache group; only group 0 is tracked.
    group: int = 0


@dataclass(frozen=True, slots=True)
class KvBatch:
    """The events of one step of one engine: the date in ns, the rank, and the number of unknown events."""

    at_ns: int
    events: tuple[KvEvent, ...]
    rank: int = 0
    unknown: int = 0


def batch_of(value: Any) -> KvBatch:
    """Return a decoded payload, ``[date, events, rank]`` or an object of these; ValueError otherwise."""
    if isinstance(value, dict):
        value = [value.get("ts"), value.get("events"), value.get("rank", value.get("data_parallel_rank"))]
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[1], list):
        raise ValueError("neither [date, events, rank] nor an object of these")
    date, rank = value[0], value[2] if len(value) > 2 else None
    if isinstance(date, bool) or not isinstance(date, int | float) or not 0 <= date < 1e11:
        raise ValueError(f"the date {date!r} is no number of seconds")
    events = [event for each in value[1] if (event := _event(each)) is not None]
    unknown = len(value[1]) - len(events)
    return KvBatch(round(date * 1e6) * 1000, tuple(events), rank if isinstance(rank, int) else 0, unknown)


def _event(value: Any) -> KvEvent | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(value, list) and value:
        kind = value[0]
    if not isinstance(kind, str) or kind not in _FIELDS:
        return None
    fields = value if isinstance(value, dict) else dict(zip(_FIELDS[kind], value[1:], strict=False))
    hashes = fields.get("block_hashes", [])
    if not isinstance(hashes, list):
        raise ValueError("block_hashes is no list")
    parent, size = fields.get("parent_block_hash"), fields.get("block_size", 0)
    if kind == "BlockStored" and not (isinstance(size, int) and 0 < size <= 1 << 20):
        raise ValueError(f"block_size {size!r} is no size")
    return KvEvent(
        _KINDS[kind],
        tuple(_name(each) for each in hashes),
        None if parent is None else _name(parent),
        size if isinstance(size, int) else 0,
        str(fields.get("medium") or _GPU).upper(),
        group if isinstance(group := fields.get("group_idx") or 0, int) else 0,
    )


def _name(value: Any) -> Name:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"the block hash {value!r} is neither a number nor bytes")
    return value
