"""Files to start from: a model, a GPU, a link or a step-time set, as commented TOML."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from kvcache_sim.model.channels import ChannelSpec, load_channel
from kvcache_sim.model.format_rates import ExpertRates, GemmRates
from kvcache_sim.model.gpus import GpuSpec, KernelRates, load_gpu
from kvcache_sim.model.hugging_face.configuration import read_configuration, unknown_architecture
from kvcache_sim.model.model_file import load_model, model_text
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_time_file import Provenance
from kvcache_sim.model.step_time_file import model_text as step_time_text
from kvcache_sim.model.step_times import load_step_time, measured_on

_MODEL_HEAD = """\
# A model as a list of layer groups. Every layer from 0 on is in one group: layers = "0-2, 5, 8-62:2" (every
# second). attention kinds: full | sliding (window_tokens) | chunked (chunk_tokens). Further kinds: linear (a
# state of fixed bytes) | latent (MLA) | latent-sparse (with an indexer) | compressed (DeepSeek-V4). Leave it
# out if a layer has no attention. feed_forward kinds: dense | moe. kv_dtype is the KV cache's: an FP8
# checkpoint does not mean an FP8 cache. [weights] are the checkpoint's formats: bf16 fp16 fp8 mxfp8 int8
# int4-g32 int4-g128 nvfp4 mxfp4. params_total and params_active are counted from the layers if not given.
"""
_DRAFT_HEAD = """\
# A draft: {} is not known, so its fields were read by their usual names. Check each line.
"""
_EMPTY_DRAFT = """\
# A draft: nothing but the name {name} is known. Fill in each 0 from its config.json.
source = "draft of {name}"
hidden_size = 0
vocab_size = 0
max_position_embeddings = 0
params_total = {weights:_}  # by its name
[weights]  # by its name
{formats}embedding = "bf16"
[[group]]
layers = "0"  # 0-31: 32 layers
attention = {{ kind = "full", heads = 0, kv_heads = 0, head_size = 0 }}
feed_forward = {{ kind = "dense", intermediate_size = 0 }}
"""
_GPU_HEAD = """\
# A GPU by its vendor's figures: dense rates, links in one direction (0: no NVLink). Bytes are bytes, not GiB.
"""
_KERNELS_HEAD = """\
# Shares of these rates that kernels reach, and fixed times in microseconds. mixed_kv_factor: cost of reading
# KV in steps with a prefill chunk, relative to pure decode steps (FlashAttention 3: about 1, 2: about 2).
"""
_FORMATS_HEAD = """\
# GEMMs, and experts of a mixture, by the format of their weights. io: how often input and output are moved.
# Other formats have the medians of the measured GPUs.
"""
_CHANNEL_HEAD = """\
# A link in one direction: t = latency + pieces * piece_submit
#     + max(pieces * piece_overhead, bytes / bandwidth + pieces * piece_gap).
"""
_STEP_TIME_HEAD = """\
# Step times as coefficients, in ms: see docs/data/step-time-terms.toml. kvsim calibrate fit writes it from
# measurements. base_points are (tokens of a step, ms); kv_ms_per_thousand is the cost of a thousand tokens of
# KV read by decodes. kv_mixed_… is the same in steps with a prefill chunk; pairs_ms_per_million is that of
# a million pairs of new and earlier tokens.
"""


def new_model(start: str) -> str:
    """Return a model file to edit, based on a model by name or file; a draft of an unknown architecture."""
    path = Path(start) / "config.json" if Path(start).is_dir() else Path(start)
    unknown = unknown_architecture(path) if path.suffix == ".json" and path.is_file() else ""
    if not unknown:
        return _MODEL_HEAD + model_text(load_model(start))
    lines = model_text(read_configuration(path, draft=True)).splitlines()
    marked = [f"{line}  # check" if " = " in line else line for line in lines]
    return _MODEL_HEAD + _DRAFT_HEAD.format(unknown) + "\n".join(marked) + "\n"


def draft_model(name: str, weights: int, dtype: str) -> str:
    """Return a model file of which only the name is known: its number of weights and their format.

    Its shape is left to fill in: the file is refused until then.
    """
    formats = "".join(f'{part} = "{dtype}"\n' for part in ("attention", "feed_forward", "experts"))
    return _MODEL_HEAD + _EMPTY_DRAFT.format(name=name, weights=weights, formats=formats)


def new_gpu(start: str) -> str:
    """Return a GPU file to edit, based on a GPU by name or file."""
    gpu = load_gpu(start)
    unused = ("memory_bytes",) if gpu.reported_memory_bytes else ()
    plain = _fields_text(gpu, without=("kernels", "formats", *unused))
    rows = [("gemms", each) for each in gpu.formats.gemms] + [
        ("experts", each) for each in gpu.formats.experts
    ]
    formats = [f"\n[{part}.{each.dtype}]\n{_fields_text(each, ('dtype',))}" for part, each in rows]
    by_format = f"\n{_FORMATS_HEAD}{''.join(formats).lstrip()}" if formats else ""
    return f"{_GPU_HEAD}{plain}\n{_KERNELS_HEAD}[kernels]\n{_fields_text(gpu.kernels)}{by_format}"


def new_channel(start: str) -> str:
    """Return a link file to edit, based on a preset by name or file."""
    return _CHANNEL_HEAD + _fields_text(load_channel(start))


def new_step_time(start: str) -> str:
    """Return a step-time file to edit, based on any source with coefficients.

    Raises UsageError for a table (measured iterations).
    """
    from kvcache_sim.base.errors import UsageError

    found = load_step_time(start)
    if not isinstance(found, ParametricStepTime):
        raise UsageError("not made of coefficients", where="--from", got=start, hint="kvsim calibrate fit")
    subject = measured_on(start)
    provenance = Provenance(
        subject.model or "", subject.gpu or "", subject.tensor_parallel, f"started from {start}"
    )
    return _STEP_TIME_HEAD + step_time_text(found, provenance, [])


def _fields_text(
    spec: GpuSpec | ChannelSpec | KernelRates | GemmRates | ExpertRates, without: tuple[str, ...] = ()
) -> str:
    values = {field.name: getattr(spec, field.name) for field in fields(spec)}
    shown = {
        key: value for key, value in values.items() if key not in ("name", *without) and value is not None
    }
    return "".join(f"{key} = {_value(value)}\n" for key, value in shown.items())


def _value(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        return repr(list(value))
    return f"{value:_}" if isinstance(value, int) else repr(value)
