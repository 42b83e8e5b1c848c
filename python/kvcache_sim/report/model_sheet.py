"""What one model weighs and keeps, as ``kvsim models show`` prints it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvcache_sim.model.dtypes import KV_DTYPES, check_dtype
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_room import default_engine, kv_room
from kvcache_sim.model.layer_group import layers_text
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.models import load_model
from kvcache_sim.units import format_bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """What a sheet is asked for; empty: the model's own ``kv_dtype``, no ``gpu`` and so no room."""

    tensor_parallel: int = 1
    kv_dtype: str = ""
    lengths: tuple[int, ...] = ()
    gpu: str = ""
    gpu_memory_utilization: float = 0.9


def model_sheet(name: str, asked: Asked) -> dict[str, Any]:
    """Return a model's figures on one of its GPUs; bytes are whole numbers.

    Raises UsageError for an unknown model, GPU or format, and where the weights do not fit.
    """
    model = load_model(name)
    if asked.kv_dtype:
        model = replace(model, kv_dtype=check_dtype(asked.kv_dtype, "--kv-dtype", KV_DTYPES))
    tp = asked.tensor_parallel
    return {
        "name": model.name,
        "source": model.source,
        "layers": model.layers,
        "params_total": model.params_total,
        "params_active": model.params_active,
        "weights_bytes": model.weights_bytes,
        "weight_dtypes": {part: getattr(model.weights, part) for part in type(model.weights).__slots__},
        "kv_dtype": model.kv_dtype,
        "tensor_parallel": tp,
        "groups": [
            {
                "layers": layers_text(group.layers),
                "attention": group.attention.kind if group.attention else None,
                "feed_forward": group.feed_forward.kind if group.feed_forward else None,
            }
            for group in model.groups
        ],
        "caches": [
            {
                "what": cache.what,
                "layers": layers_text(layers),
                "reach": cache.reach,
                "reach_tokens": cache.reach_tokens,
                "entry_bytes": cache.entry_bytes,
                "tokens_per_entry": cache.tokens_per_entry,
            }
            for cache, layers in model.caches(tp).items()
        ],
        "kv_bytes_per_token_per_gpu": model.kv_bytes_per_token_per_gpu(tp),
        "kv_bytes_fixed_per_gpu": model.kv_bytes_fixed_per_gpu(tp),
        "kv_bytes_per_sequence_per_gpu": {
            str(length): model.kv_bytes_per_gpu(length, tp) for length in asked.lengths
        },
        "room": _room(model, asked) if asked.gpu else None,
    }


def _room(model: ModelSpec, asked: Asked) -> dict[str, Any]:
    gpu, tp = load_gpu(asked.gpu), asked.tensor_parallel
    room = kv_room(model, gpu, tp, replace(default_engine(gpu), utilisation=asked.gpu_memory_utilization))
    return {
        "gpu": gpu.name,
        "kv_bytes": room.kv_bytes,
        "uncertainty_bytes": room.uncertainty_bytes,
        "tokens": max(0, room.kv_bytes) // max(1, model.kv_bytes_per_token_per_gpu(tp)),
        "sentence": str(room),
    }


def sheet_text(sheet: dict[str, Any]) -> str:
    """Return a sheet as lines."""
    formats = ", ".join(f"{part} {dtype}" for part, dtype in sheet["weight_dtypes"].items())
    tp = sheet["tensor_parallel"]
    lines = [
        f"{sheet['name']}: {sheet['source']}",
        f"weights   {sheet['params_total'] / 1e9:.2f}B, {sheet['params_active'] / 1e9:.2f}B a token, "
        f"{format_bytes(sheet['weights_bytes'])} ({formats})",
        f"layers    {sheet['layers']}",
    ]
    for group in sheet["groups"]:
        parts = " + ".join(filter(None, (group["attention"], group["feed_forward"])))
        lines.append(f"          {parts}: {group['layers']}")
    lines.append(f"KV cache  {sheet['kv_dtype']}, on each of {tp} GPU{'s' if tp > 1 else ''}")
    for cache in sheet["caches"]:
        lines.append(f"          {_cache_text(cache)}: layers {cache['layers']}")
    fixed = sheet["kv_bytes_fixed_per_gpu"]
    lines.append(
        f"a sequence {sheet['kv_bytes_per_token_per_gpu']:,} bytes a token"
        + (f" and {fixed:,} bytes once its windows are full" if fixed else "")
    )
    for length, size in sheet["kv_bytes_per_sequence_per_gpu"].items():
        lines.append(f"          {int(length):>9,} tokens: {size:>17,} bytes ({format_bytes(size)})")
    if (room := sheet["room"]) is not None:
        lines.append(f"room      {room['gpu']}: {room['tokens']:,} tokens; {room['sentence']}")
    return "\n".join(lines)


def _cache_text(cache: dict[str, Any]) -> str:
    size = f"{cache['entry_bytes']:,} bytes"
    if cache["reach"] == "state":
        return f"{cache['what']}, {size} a layer whatever the length"
    every = cache["tokens_per_entry"]
    each = f"{cache['what']}, {size} a layer and " + ("token" if every == 1 else f"{every} tokens")
    limit = {"window": "the last", "chunk": "a chunk of"}.get(cache["reach"])
    return f"{each}, {limit} {cache['reach_tokens']:,} tokens" if limit else each
