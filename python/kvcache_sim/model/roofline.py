"""The roofline source: a step's time for any model on any GPU, from shapes and the rates of its kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.model.attention_work import attention_work
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.layer_kernels import Linear, linear_layers, moved_bytes_per_token
from kvcache_sim.model.links import AllReduces, all_reduce_ms, load_links
from kvcache_sim.model.memory import kv_room_bytes
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.parametric import ParametricStepTime, six_digits

#: Head and sampler of one more sequence.
SEQUENCE_MS = 0.005
#: Kernels of a layer that are neither GEMM nor attention: two norms, rotary embedding, KV write, activation.
_SMALL_KERNELS = 5

_TOKENS = np.unique(
    np.concatenate((np.arange(1, 17), np.rint(2 ** np.arange(4, 15.01, 0.5)).astype(np.int64)))
)


def roofline_step_time(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, links: AllReduces | None = None
) -> ParametricStepTime:
    """Return the sum of a step's kernels, each the larger of memory and compute time, smoothly joined.

    Weights are read once a step, of a mixture only the experts that some token needs; a layer has its GEMMs,
    its attention and five small kernels, with several GPUs two all-reduces over ``links``, those of the GPU
    unless given. Rates and fixed times are the GPU's (``KernelRates``): measured for most, else assumed.
    Host time between steps is not in it. (The form: Williams et al., CACM 52(4), 2009.) Raises UsageError
    when the weights do not fit or the degree does not divide the heads.
    """
    if tensor_parallel < 1 or model.heads % tensor_parallel:
        raise UsageError(
            f"tensor parallel degree does not divide the {model.heads} heads of {model.name}",
            got=str(tensor_parallel),
        )
    kv_room_bytes(model, gpu, tensor_parallel)
    tokens = _TOKENS.astype(np.float64)
    rates, work = gpu.kernels, attention_work(model, tensor_parallel)
    attention_per_ms = gpu.bf16_flops * rates.attention_efficiency * tensor_parallel / 1e3
    linears = linear_layers(model, tensor_parallel)
    base = np.sum([_linear_ms(linear, gpu, tokens) for linear in linears], axis=0)
    base += _other_ms(model, gpu, tensor_parallel, tokens) + work.flops_per_token / attention_per_ms * tokens
    reduced = layer_all_reduces_ms(model, gpu, tensor_parallel, tokens, links)
    base = np.maximum.accumulate(base + model.layers * reduced)
    kv_per_ms = gpu.memory_bytes_per_s * rates.kv_efficiency / 1e3
    kv_ms = work.read_bytes_per_past_token * 1e3 / kv_per_ms
    sequence_ms = SEQUENCE_MS + work.read_bytes_per_sequence / kv_per_ms
    points = zip(_TOKENS.tolist(), base.tolist(), strict=True)
    return ParametricStepTime(
        base_points=tuple((float(x), six_digits(y)) for x, y in points),
        pairs_ms_per_million=work.flops_per_pair * 1e6 / attention_per_ms,
        kv_ms_per_thousand=kv_ms,
        kv_mixed_ms_per_thousand=rates.mixed_kv_factor * kv_ms,
        past_ms_per_thousand=kv_ms,
        sequence_ms=sequence_ms,
        sequence_mixed_ms=sequence_ms,
    )


def _linear_ms(linear: Linear, gpu: GpuSpec, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ms a step of alike linear layers at each token count.

    GEMMs of one layer are alike in operations a byte, so that their joined times are the joined time of all.
    """
    rates = gpu.kernels
    operations = 2 * tokens * linear.active * linear.weights
    joined = rates.joined_ms(
        linear.read_bytes(tokens) / gpu.memory_bytes_per_s * 1e3, operations / gpu.flops(linear.dtype) * 1e3
    )
    return linear.count * (joined + linear.gemms * (rates.gemm_us + rates.gap_us) / 1e3)


def _other_ms(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, tokens: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the ms a step of small kernels, and of attention apart from its KV and its products."""
    rates = gpu.kernels
    fixed_us = _SMALL_KERNELS * (rates.small_us + rates.gap_us) + rates.attention_us + rates.gap_us
    ms = 0 * tokens
    for group in model.groups:
        small, attention = moved_bytes_per_token(group, model, tensor_parallel)
        moved = tokens * (small / rates.weights_efficiency + rates.attention_io * attention)
        ms += len(group.layers) * (fixed_us / 1e3 + moved / gpu.memory_bytes_per_s * 1e3)
    return ms


def layer_all_reduces_ms(
    model: ModelSpec,
    gpu: GpuSpec,
    tensor_parallel: int,
    tokens: NDArray[np.float64],
    links: AllReduces | None = None,
) -> NDArray[np.float64]:
    """Return the ms of a layer's two all-reduces at each token count: 16-bit hidden states among all GPUs."""
    if links is None and gpu.links and tensor_parallel > 1:
        links = load_links(gpu.links)
    rate = gpu.nvlink_bytes_per_s or gpu.pcie_bytes_per_s
    return 2 * all_reduce_ms(links, rate, tensor_parallel, tokens * model.hidden_size * 2)
