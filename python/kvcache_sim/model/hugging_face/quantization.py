"""Formats of weights and KV from a checkpoint's ``quantization_config``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.layer_group import WeightDtypes

_PLAIN = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4", "mxfp8": "mxfp8"}
_MODELOPT = {"FP8": "fp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4", "MXFP8": "mxfp8", "MXFP4": "mxfp4"}
_KV = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}


def plain_dtype(values: Mapping[str, Any], where: str) -> str:
    """Return the format of unquantized weights: ``torch_dtype`` or ``dtype``, bf16 if neither is given."""
    given = str(values.get("torch_dtype") or values.get("dtype") or "bfloat16").removeprefix("torch.")
    if given not in _PLAIN:
        raise UsageError("unknown torch_dtype", where=where, got=repr(given))
    return "bf16" if given == "float32" else _PLAIN[given]


def weight_dtypes(quantization: Mapping[str, Any], plain: str, where: str) -> WeightDtypes:
    """Return the formats of a checkpoint; embeddings and excluded modules keep ``plain``.

    Raises UsageError for an unknown method.
    """
    if not quantization:
        return WeightDtypes(plain, plain, plain, plain)
    if quantization.get("quant_method") == "mxfp4":
        return WeightDtypes(plain, plain, "mxfp4", plain)
    quantised, of_attention = _quantised(quantization, where)
    left_out = _left_out(quantization)
    attention = plain if _names(left_out, _ATTENTION) else of_attention
    dense = plain if _names(left_out, _SHARED) else quantised
    return WeightDtypes(attention, dense, quantised, plain)


def kv_dtype(quantization: Mapping[str, Any]) -> str:
    """Return the KV cache's format: bf16 unless the checkpoint states a format of the KV cache itself."""
    scheme = quantization.get("kv_cache_scheme")
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
        return "fp8" if scheme.get("type") == "float" else "int8"
    stated = quantization.get("kv_cache_quant_algo") or scheme
    return _KV.get(str(stated), "bf16")


def _quantised(quantization: Mapping[str, Any], where: str) -> tuple[str, str]:
    """Return the format of quantized weights, and that of attention if it is different."""
    method = str(quantization.get("quant_method", "")).lower()
    algorithm = str(quantization.get("moe_quant_algo") or quantization.get("quant_algo") or "").upper()
    if algorithm in _MODELOPT:
        return _MODELOPT[algorithm], _MODELOPT[algorithm]
    groups = quantization.get("config_groups")
    if isinstance(groups, dict) and groups:
        return _of_targets({_targets(group): _of_group(group, where) for group in groups.values()})
    layers = quantization.get("quantized_layers")
    if isinstance(layers, dict) and layers:
        return _of_targets(
            {name: _MODELOPT.get(str(layer.get("quant_algo")), "fp8") for name, layer in layers.items()}
        )
    if method in _METHODS:
        return _METHODS[method], _METHODS[method]
    if method in ("awq", "gptq", "auto-round", "awq_marlin", "gptq_marlin"):
        dtype = "int8" if quantization.get("bits") == 8 else "int4-g128"
        return dtype, dtype
    raise UsageError("unknown quant_method", where=f"{where} quantization_config", got=repr(method))


def _of_targets(dtypes: Mapping[str, str]) -> tuple[str, str]:
    """Return the smallest format, and the largest of the targets that name attention."""
    of_attention = [dtype for targets, dtype in dtypes.items() if "attn" in targets]
    smallest = min(dtypes.values(), key=_BY_SIZE.index)
    return smallest, max(of_attention, key=_BY_SIZE.index) if of_attention else smallest


def _targets(group: Any) -> str:
    return " ".join(map(str, group.get("targets", ()))) if isinstance(group, dict) else ""


_BY_SIZE = ("nvfp4", "mxfp4", "int4-g128", "int4-g32", "fp8", "int8", "mxfp8", "bf16")


def _of_group(group: Any, where: str) -> str:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        return "bf16"
    bits, floating, size = weights.get("num_bits"), weights.get("type") == "float", weights.get("group_size")
    if bits == 8:
        return "fp8" if floating else "int8"
    if bits == 4:
        if floating:
            return "nvfp4" if size == 16 else "mxfp4"
        return "int4-g32" if size == 32 else "int4-g128"
    raise UsageError("weights of unknown bits", where=f"{where} quantization_config", got=repr(bits))


def _left_out(quantization: Mapping[str, Any]) -> list[str]:
    keys = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
    lists = (quantization.get(key) for key in keys)
    return [str(name) for found in lists if isinstance(found, list) for name in found]


#: Names of modules that hold most weights of a part, whole or by their projections.
_ATTENTION = re.compile(r"attn(\.?\*|$|\.\*|\.(q|k|v|o|kv)_(a_|b_)?proj)")
_SHARED = re.compile(r"shared_experts?(\.?\*|$|\.\*|\.(gate|up|down)_proj)|mlp\W+\(gate\|up")


def _names(left_out: list[str], module: re.Pattern[str]) -> bool:
    """True if modules of a kind are excluded: by a pattern, or individually more than ten times."""
    found = [name for name in left_out if module.search(name)]
    return any(name.startswith(("re:", "*")) for name in found) or len(found) > 10
