"""The roofline source: a step's time for any model on any GPU from public figures, within about 30 %."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.model.attention_work import attention_work
from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.memory import kv_room_bytes
from kvcache_sim.model.model_spec import ModelSpec
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
    work = attention_work(model, tensor_parallel)
    flops = gpu.flops(model.weights.attention) * COMPUTE_EFFICIENCY * tensor_parallel
    read_ms = _weights_read_bytes(model, tokens) / (per_s * WEIGHTS_EFFICIENCY) * 1e3
    linear = _linear_flops(model, gpu) / (gpu.bf16_flops * COMPUTE_EFFICIENCY * tensor_parallel)
    compute_ms = (linear + work.flops_per_token / flops) * tokens * 1e3
    base = (read_ms**EXPONENT + compute_ms**EXPONENT) ** (1 / EXPONENT)
    reduced = all_reduce_ms(gpu, tensor_parallel, tokens * model.hidden_size * 2)
    base = np.maximum.accumulate(base + 2 * model.layers * reduced)
    kv_per_ms = gpu.memory_bytes_per_s * KV_EFFICIENCY / 1e3
    kv_ms = work.read_bytes_per_past_token * 1e3 / kv_per_ms
    sequence_ms = SEQUENCE_MS + work.read_bytes_per_sequence / kv_per_ms
    points = zip(_TOKENS.tolist(), base.tolist(), strict=True)
    return ParametricStepTime(
        base_points=tuple((float(x), float(f"{y:.6g}")) for x, y in points),
        pairs_ms_per_million=work.flops_per_pair * 1e6 / flops * 1e3,
        kv_ms_per_thousand=kv_ms,
        kv_mixed_ms_per_thousand=MIXED_KV_FACTOR * kv_ms,
        past_ms_per_thousand=kv_ms,
        sequence_ms=sequence_ms,
        sequence_mixed_ms=sequence_ms,
    )


def _weights_read_bytes(model: ModelSpec, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bytes of the weights that a step of so many tokens reads; an embedding table is only looked up."""
    looked_up = 0 if model.tied_embeddings else model.vocab_size * model.hidden_size
    experts = float(model.counted_weights.experts * bits_per_value(model.weights.experts) / 8)
    always = model.weights_bytes - experts - looked_up * float(bits_per_value(model.weights.embedding) / 8)
    read = always + 0 * tokens
    for group in model.groups:
        if (mixture := group.feed_forward) is not None and mixture.experts:
            weights = len(group.layers) * mixture.experts * mixture.expert_params(model.hidden_size)
            needed = 1 - (1 - mixture.experts_active / mixture.experts) ** tokens
            read = read + weights * float(bits_per_value(model.weights.experts) / 8) * needed
    return read


def _linear_flops(model: ModelSpec, gpu: GpuSpec) -> float:
    """Operations of a token in all linear layers, in operations of the bf16 rate; the head is left out."""
    counted = model.counted_weights
    experts = counted.experts - counted.idle_experts
    attention = model.params_active - model.embedding_params - counted.feed_forward - experts
    parts = (
        (attention, model.weights.attention),
        (counted.feed_forward, model.weights.feed_forward),
        (experts, model.weights.experts),
    )
    return sum(2 * weights * gpu.bf16_flops / gpu.flops(dtype) for weights, dtype in parts)


def all_reduce_ms(
    gpu: GpuSpec, tensor_parallel: int, message_bytes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the time of one all-reduce of each size among the GPUs of a TP degree; 0 for a single one."""
    if tensor_parallel == 1:
        return np.zeros_like(message_bytes)
    link = (gpu.nvlink_bytes_per_s or gpu.pcie_bytes_per_s) * LINK_EFFICIENCY
    return ALL_REDUCE_LATENCY_MS + 2 * message_bytes / link * 1e3
