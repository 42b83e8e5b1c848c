"""The format of a line's weights: what ``--quantization`` says, else what the checkpoint's name says."""

from __future__ import annotations

from kvcache_sim.model.model_file import load_model, names_model_file
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.scenario.launch.making import Making
from kvcache_sim.scenario.launch.names import dtype_of_name

FLAG = "--quantization"
#: Words of the engines' flag → format; the first word of a format is printed. Others (``compressed-tensors``,
#: ``gguf``, ``bitsandbytes``, …) stand for formats that only the checkpoint states.
_METHODS = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "fp8_per_tensor": "fp8",
    "fp8_per_block": "fp8",
    "ptpc_fp8": "fp8",
    "w8a8_fp8": "fp8",
    "modelopt": "fp8",
    "modelopt_fp8": "fp8",
    "w8a8_int8": "int8",
    "awq": "int4-g128",
    "awq_marlin": "int4-g128",
    "gptq": "int4-g128",
    "gptq_marlin": "int4-g128",
    "moe_wna16": "int4-g128",
    "modelopt_fp4": "nvfp4",
    "petit_nvfp4": "nvfp4",
    "modelopt_mxfp8": "mxfp8",
    "mxfp4": "mxfp4",
    "mxfp8": "mxfp8",
}


def weights_of(made: Making, model: str) -> str:
    """Return the format of all weights but the embeddings; "" for the formats of ``model`` itself.

    Takes the flag off those without a setting if a run has its format, and notes what stated the format.
    """
    spec, given = load_model(model), made.take(FLAG)
    flag = "" if given is None else given.text
    stated = "" if names_model_file(model) else dtype_of_name(made.line.model)
    dtype = stated or _METHODS.get(flag, "")
    # Most methods read what the checkpoint has; GPTQ's has 4 or 8 bits.
    agrees = _METHODS.get(flag, dtype) == dtype or (flag.startswith("gptq") and dtype == "int8")
    if given is not None and not (dtype and agrees):
        made.leave(
            given,
            "the weights have the formats of the model's file; nearest: replica.step_time with a format",
        )
    if dtype in ("", dtype_of_most(spec)):
        return ""
    source = f"the name {made.line.model}" if stated else str(given)
    made.note("assumed", f"all weights but the embeddings are {dtype}, as {source} says")
    return dtype


def has_experts(spec: ModelSpec) -> bool:
    """Return True for a mixture."""
    return any(group.feed_forward and group.feed_forward.experts for group in spec.groups)


def flags_of_weights(dtype: str, model: str) -> list[str] | None:
    """Return the flag for a format of weights; [] for those of ``model`` itself, None for no such flag."""
    if dtype in ("", dtype_of_most(load_model(model))):
        return []
    method = next((word for word, each in _METHODS.items() if each == dtype), None)
    return None if method is None else [FLAG, method]


def dtype_of_most(spec: ModelSpec) -> str:
    """Return the format of most weights of a model."""
    return spec.weights.experts if has_experts(spec) else spec.weights.feed_forward
