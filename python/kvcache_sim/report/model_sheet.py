"""The weights and KV cache of a model, as ``kvsim models show`` prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import format_bytes
from kvcache_sim.model.dtypes import FP8_DS_MLA, KV_DTYPES, check_dtype
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_capacity import default_engine, kv_capacity
from kvcache_sim.model.kv_concurrency import Demand, logged_tokens
from kvcache_sim.model.kv_groups import KvLayout, kv_layout, token_bytes
from kvcache_sim.model.layer_group import layers_text
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.releases import newest_equal


@dataclass(frozen=True, slots=True)
class Asked:
    """Options of a sheet; empty: the model's own ``kv_dtype``, and no ``gpu``, so no capacity."""

    tensor_parallel: int = 1
    kv_dtype: str = ""
    lengths: tuple[int, ...] = ()
    gpu: str = ""
    gpu_memory_utilization: float | None = None


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
        "weight_dtypes": {part: getattr(model.weights, part) for part in model.weights.__struct_fields__},
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
        "kv_groups": _kv_groups(model, asked),
        "kv_bytes_per_token_per_gpu": model.kv_bytes_per_token_per_gpu(tp),
        "kv_bytes_fixed_per_gpu": model.kv_bytes_fixed_per_gpu(tp),
        "kv_bytes_per_sequence_per_gpu": {
            str(length): model.kv_bytes_per_gpu(length, tp) for length in asked.lengths
        },
        "room": _kv_capacity(model, asked) if asked.gpu else None,
    }


def _layout(model: ModelSpec, tp: int) -> KvLayout | None:
    """Return vLLM's layout of the layers in blocks on one GPU; None if it is not known."""
    try:
        return kv_layout(model, tp)
    except UsageError:
        return None


def _kv_groups(model: ModelSpec, asked: Asked) -> dict[str, Any] | None:
    layout = _layout(model, asked.tensor_parallel)
    if layout is None:
        return None
    decoding = Demand(max_num_batched_tokens=1, batches_in_flight=1)
    return {
        "page_bytes": layout.page_bytes,
        "bytes_per_block": layout.bytes_per_block,
        "groups": [
            {
                "kind": group.name,
                "layers": len(group.layers),
                "block_size_tokens": group.block_size_tokens,
                "kv_bytes_per_token": 0 if group.kind == "linear" else group.kept_bytes,
                "state_bytes": group.kept_bytes if group.kind == "linear" else 0,
            }
            for group in layout.groups
        ],
        "kv_dtype": model.kv_dtype if token_bytes(model) else FP8_DS_MLA,
        "sequence_bytes": {
            str(length): sum(decoding.blocks_of(group, length) for group in layout.groups)
            * layout.bytes_per_block
            for length in asked.lengths
        },
    }


def _kv_capacity(model: ModelSpec, asked: Asked) -> dict[str, Any]:
    gpu, tp = load_gpu(asked.gpu), asked.tensor_parallel
    release = newest_equal("vllm")
    engine = replace(default_engine(gpu, release, model, tp), source=f", {release}")
    if asked.gpu_memory_utilization is not None:
        engine = replace(engine, utilisation=asked.gpu_memory_utilization)
    kv, layout = kv_capacity(model, gpu, tp, engine), _layout(model, tp)
    tokens = requests = None
    if layout is not None and len(layout.groups) > 1:
        demand = Demand(max_num_batched_tokens=engine.max_num_batched_tokens)
        blocks, requests = max(0, kv.kv_bytes) // layout.bytes_per_block, model.context.default_tokens
        tokens = logged_tokens(layout, blocks, requests, demand)
    elif layout is not None:
        tokens = max(0, kv.kv_bytes) // max(1, model.kv_bytes_per_token_per_gpu(tp))
    return {
        "gpu": gpu.name,
        "kv_bytes": kv.kv_bytes,
        "uncertainty_bytes": kv.uncertainty_bytes,
        "tokens": tokens,
        "request_tokens": requests,
        "sentence": str(kv),
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
    lines += _group_lines(sheet["kv_groups"])
    fixed = sheet["kv_bytes_fixed_per_gpu"]
    lines.append(
        f"a sequence {sheet['kv_bytes_per_token_per_gpu']:,} bytes a token"
        + (f" and {fixed:,} bytes once its windows are full" if fixed else "")
    )
    layout = sheet["kv_groups"]
    for length, size in sheet["kv_bytes_per_sequence_per_gpu"].items():
        line = f"          {int(length):>9,} tokens: {size:>17,} bytes ({format_bytes(size)})"
        if layout is not None and len(layout["groups"]) > 1:
            line += f", in vLLM's blocks {layout['sequence_bytes'][length]:,} bytes"
        lines.append(line)
    if layout is not None and any(group["state_bytes"] for group in layout["groups"]):
        lines.append("          blocks: two of each group of states, as vLLM holds them with prefix caching")
    if (kv := sheet["room"]) is not None:
        unknown = f"tokens are not known, as the layout of {sheet['name']} is not"
        tokens = unknown if kv["tokens"] is None else f"{kv['tokens']:,} tokens"
        tokens += f" in requests of {kv['request_tokens']:,}" if kv["request_tokens"] else ""
        lines.append(f"memory    {kv['gpu']}: {tokens}; {kv['sentence']}")
    return "\n".join(lines)


def _group_lines(layout: dict[str, Any] | None) -> list[str]:
    """Return the groups of one pool, equal ones in one line."""
    if layout is None:
        return ["groups    not known: vLLM's layout of these layers is not simulated"]
    block = f"{layout['bytes_per_block']:,} bytes"
    lines: list[str] = []
    fixed = layout["kv_dtype"] == FP8_DS_MLA
    for group in layout["groups"]:
        state, token = group["state_bytes"], group["kv_bytes_per_token"]
        kept = f"a state of {state:,} bytes" if state else f"{token:,} bytes a token"
        block_text = f"blocks of {group['block_size_tokens']} tokens and {block}"
        line = f"{group['kind']}, {group['layers']} layers: {kept}, {block_text}"
        lines.append(f"{'' if lines else 'groups':10}{line}{' in ' + FP8_DS_MLA if fixed else ''}")
    return lines


def _cache_text(cache: dict[str, Any]) -> str:
    size = f"{cache['entry_bytes']:,} bytes"
    if cache["reach"] == "state":
        return f"{cache['what']}, {size} a layer whatever the length"
    every = cache["tokens_per_entry"]
    each = f"{cache['what']}, {size} a layer and " + ("token" if every == 1 else f"{every} tokens")
    limit = {"window": "the last", "chunk": "a chunk of"}.get(cache["reach"])
    return f"{each}, {limit} {cache['reach_tokens']:,} tokens" if limit else each
