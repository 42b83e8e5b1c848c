"""The roofline source: a step's time for any model on any GPU from public figures, within about 30 %."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.memory import kv_room_bytes
from kvcache_sim.model.models import ModelSpec
from kvcache_sim.model.parametric import ParametricStepTime

#: What kernels reach of the published rates: round figures between those of the fitted sets (GEMMs 0.6–1.0 of
#: the peak rate, weights 0.6–0.95 and KV 0.8–0.95 of the bandwidth). Measured medians on H100 and A100: large
#: GEMMs 0.81 and 0.90, attention over long prompts 0.58 and 0.54, weights of small batches 0.86 and 0.72.
COMPUTE_EFFICIENCY = 0.75
WEIGHTS_EFFICIENCY = 0.72
KV_EFFICIENCY = 0.85
#: How sharply a step turns from reading weights to computing (the exponent of the fits is 1.6–2.1).
EXPONENT = 2.0
#: One small all-reduce among 2–8 GPUs in a CUDA graph (4.3–5.7 µs measured). A large one takes what sending
#: the message twice at this share of the links' rate would, hardly depending on how many GPUs there are.
ALL_REDUCE_LATENCY_MS = 0.005
LINK_EFFICIENCY = 0.8
#: Head and sampler of one more sequence.
SEQUENCE_MS = 0.005
MIXED_KV_FACTOR = 1.95

_TOKENS = np.unique(
    np.concatenate((np.arange(1, 17), np.rint(2 ** np.arange(4, 15.01, 0.5)).astype(np.int64)))
)


def roofline_step_time(model: ModelSpec, gpu: GpuSpec, tensor_parallel: int) -> ParametricStepTime:
    """Return the model of the larger of memory and compute time, smoothly joined.

    Weights are read once a step, of a mixture only the experts that some token needs; each token costs two
    operations an active weight and two all-reduces a layer; attention costs its products and the KV it reads.
    Expect ±20–30 % (Williams et al., CACM 52(4), 2009, and what fits on real engines leave of it). Raises
    UsageError when the weights do not fit or the degree does not divide the heads.
    """
    if tensor_parallel < 1 or model.heads % tensor_parallel:
        raise UsageError(
            f"tensor parallel degree does not divide the {model.heads} heads of {model.name}",
            got=str(tensor_parallel),
        )
    kv_room_bytes(model, gpu, tensor_parallel)
    tokens = _TOKENS.astype(np.float64)
    per_s = gpu.memory_bytes_per_s * tensor_parallel
    flops = gpu.flops(model.weight_bytes) * COMPUTE_EFFICIENCY * tensor_parallel
    read_ms = _weights_read_bytes(model, tokens) / (per_s * WEIGHTS_EFFICIENCY) * 1e3
    compute_ms = 2 * (model.params_active - 2 * model.vocab_size * model.hidden_size) * tokens / flops * 1e3
    base = (read_ms**EXPONENT + compute_ms**EXPONENT) ** (1 / EXPONENT)
    reduced = all_reduce_ms(gpu, tensor_parallel, tokens * model.hidden_size * 2)
    base = np.maximum.accumulate(base + 2 * model.layers * reduced)
    kv_bytes = model.kv_bytes_per_token_per_gpu(tensor_parallel)
    kv_ms = kv_bytes * 1e3 / (gpu.memory_bytes_per_s * KV_EFFICIENCY) * 1e3
    points = zip(_TOKENS.tolist(), base.tolist(), strict=True)
    return ParametricStepTime(
        base_points=tuple((float(x), float(f"{y:.6g}")) for x, y in points),
        pairs_ms_per_million=_attention_flops_per_pair(model) * 1e6 / flops * 1e3,
        kv_ms_per_thousand=kv_ms,
        kv_mixed_ms_per_thousand=MIXED_KV_FACTOR * kv_ms,
        past_ms_per_thousand=kv_ms,
        sequence_ms=SEQUENCE_MS,
        sequence_mixed_ms=SEQUENCE_MS,
    )


def _weights_read_bytes(model: ModelSpec, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes of the weights that a step of so many tokens reads; the embedding table is only looked up."""
    expert = 3 * model.hidden_size * model.expert_intermediate_size
    in_experts = (model.layers - model.dense_layers) * model.experts * expert
    always = model.params_total - in_experts - model.vocab_size * model.hidden_size
    needed = 1 - (1 - model.experts_active / model.experts) ** tokens if model.experts else 0 * tokens
    return (always + in_experts * needed) * model.weight_bytes


def _attention_flops_per_pair(model: ModelSpec) -> float:
    """Operations of one query meeting one key and value, over all layers and heads."""
    key_size = model.head_size + model.mla_rope_size
    return 2 * model.layers * model.heads * (key_size + model.head_size)


def all_reduce_ms(
    gpu: GpuSpec, tensor_parallel: int, message_bytes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the time of one all-reduce of each size among the GPUs of a TP degree; 0 for a single one."""
    if tensor_parallel == 1:
        return np.zeros_like(message_bytes)
    link = (gpu.nvlink_bytes_per_s or gpu.pcie_bytes_per_s) * LINK_EFFICIENCY
    return ALL_REDUCE_LATENCY_MS + 2 * message_bytes / link * 1e3
