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
#: A cached block becomes free, or is used again: it is cached in either case.
_INACTIVE = "BlockInactive"
#: Parts of the names of attention whose groups keep, and name, some blocks of a run alone.
_MASKING = ("sliding", "chunked", "mamba", "linear", "state", "conv")
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
    #: The KV cache group.
    group: int = 0
    #: False if the hashes are those of the kept blocks of a run, without positions (vLLM's masked groups).
    placed: bool = True
    session: str = ""


@dataclass(frozen=True, slots=True)
class KvBatch:
    """The events of one step of one engine: the date in ns, the rank, and what the other events are."""

    at_ns: int
    events: tuple[KvEvent, ...]
    rank: int = 0
    unknown: tuple[str, ...] = ()


def batch_of(value: Any) -> KvBatch:
    """Return a decoded payload, ``[date, events, rank]`` or an object of these; ValueError otherwise."""
    if isinstance(value, dict):
        value = [value.get("ts"), value.get("events"), value.get("rank", value.get("data_parallel_rank"))]
    if not isinstance(value, list) or len(value) < 2 or not isinstance(value[1], list):
        raise ValueError("neither [date, events, rank] nor an object of these")
    date, rank = value[0], value[2] if len(value) > 2 else None
    if isinstance(date, bool) or not isinstance(date, int | float) or not 0 <= date < 1e11:
        raise ValueError(f"the date {date!r} is no number of seconds")
    read = [_event(each) for each in value[1]]
    events = tuple(event for event in read if isinstance(event, KvEvent))
    others = tuple(event for event in read if isinstance(event, str))
    return KvBatch(round(date * 1e6) * 1000, events, rank if isinstance(rank, int) else 0, others)


def _array_fields(kind: str, values: list[Any]) -> dict[str, Any]:
    """Return the fields of an array by name; types distinguish those behind the medium.

    vLLM: lora_name, extra_keys, perhaps block_mm_infos, group_idx, kind, window. SGLang: cache_salt,
    session_id, lora_name.
    """
    names = _FIELDS[kind]
    rest = values[len(names) :]
    numbers = [each for each in rest if type(each) is int]
    fields = dict(zip(names, values, strict=False)) | dict(
        zip(("group_idx", "kv_cache_spec_sliding_window"), numbers, strict=False)
    )
    if kind == "BlockStored":
        fields["session_id"] = rest[1] if len(rest) > 1 and isinstance(rest[1], str) else None
        fields["kv_cache_spec_kind"] = next((each for each in rest[2:] if isinstance(each, str)), None)
    return fields


def _event(value: Any) -> KvEvent | str:
    """Return an event, or what an event is that neither stores nor removes blocks as far as is known."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(value, list) and value:
        kind = value[0]
    if kind == _INACTIVE:
        return f"an event {_INACTIVE}: its blocks stay cached"
    if not isinstance(kind, str) or kind not in _FIELDS:
        return "an event of an unknown type"
    fields = value if isinstance(value, dict) else _array_fields(kind, value[1:])
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
        fields.get("placed") is not False and not _is_masked(fields, len(hashes)),
        str(fields.get("session_id") or ""),
    )


def _is_masked(fields: dict[str, Any], hashes: int) -> bool:
    """Return True if an event does not name all blocks of its tokens, or its group keeps some alone."""
    tokens, size = fields.get("token_ids"), fields.get("block_size")
    if isinstance(tokens, list) and isinstance(size, int) and len(tokens) > hashes * size:
        return True
    attention = str(fields.get("kv_cache_spec_kind") or "")
    if not attention:  # full attention may have a window too, which then masks nothing
        return fields.get("kv_cache_spec_sliding_window") is not None
    return any(part in attention for part in _MASKING)


def _name(value: Any) -> Name:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"the block hash {value!r} is neither a number nor bytes")
    return value
