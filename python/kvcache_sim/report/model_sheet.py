"""What one model weighs and keeps, as ``kvsim models show`` prints it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvcache_sim.model.dtypes import KV_DTYPES, check_dtype
from kvcache_sim.model.layer_group import layers_text
from kvcache_sim.model.models import load_model
from kvcache_sim.units import format_bytes


def model_sheet(
    name: str, tensor_parallel: int, kv_dtype: str = "", lengths: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Return a model's figures on one of ``tensor_parallel`` GPUs; bytes are whole numbers.

    ``kv_dtype`` empty: the model's own. Raises UsageError for an unknown model or format.
    """
    model = load_model(name)
    if kv_dtype:
        model = replace(model, kv_dtype=check_dtype(kv_dtype, "--kv-dtype", KV_DTYPES))
    tp = tensor_parallel
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
            str(length): model.kv_bytes_per_gpu(length, tp) for length in lengths
        },
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
    return "\n".join(lines)


def _cache_text(cache: dict[str, Any]) -> str:
    size = f"{cache['entry_bytes']:,} bytes"
    if cache["reach"] == "state":
        return f"{cache['what']}, {size} a layer whatever the length"
    every = cache["tokens_per_entry"]
    each = f"{cache['what']}, {size} a layer and " + ("token" if every == 1 else f"{every} tokens")
    limit = {"window": "the last", "chunk": "a chunk of"}.get(cache["reach"])
    return f"{each}, {limit} {cache['reach_tokens']:,} tokens" if limit else each
