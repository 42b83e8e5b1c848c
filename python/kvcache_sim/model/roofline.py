"""The roofline source: step time for any model on any GPU, from shapes and the rates of its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.kv_capacity import kv_capacity_bytes
from kvcache_sim.model.layer_group import DenseFeedForward, FeedForward, LayerGroup
from kvcache_sim.model.links import AllReduces, all_reduce_ms, load_links
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.parametric import ParametricStepTime, six_digits
from kvcache_sim.model.points import Point
from kvcache_sim.model.rank_work import Degrees, shared_points

#: Up to this many tokens a window, chunk or selection counts as full for every token, as few contexts are
#: shorter; a longer one counts as attention to all, as few contexts are longer. A step's time is linear in
#: the data that it reads.
_SHORT_REACH_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """Operations on all GPUs together, bytes on one of them.

    ``flops_per_pair`` per pair of a new token and an earlier token, ``flops_per_token`` per new token;
    ``read_bytes_per_past_token`` per token of KV, ``read_bytes_per_sequence`` per sequence (windows, selected
    entries, and states, which are read and written).
    """

    flops_per_pair: int
    flops_per_token: int
    read_bytes_per_past_token: float
    read_bytes_per_sequence: int


def attention_work(model: ModelSpec, tensor_parallel: int) -> AttentionWork:
    """Return the cost of a model's attention at a TP degree."""
    pair = token = sequence = 0
    past = 0.0
    for layers, attention in model.attention_layers():
        short = 0 < attention.attended_tokens <= _SHORT_REACH_TOKENS
        products = layers * attention.flops_per_pair
        pair += layers * attention.scan_flops_per_pair + (0 if short else products)
        token += attention.attended_tokens * products if short else 0
        for cache in attention.caches(model.kv_dtype, tensor_parallel):
            chosen = attention.chosen_entries if cache.what != "index keys" else 0
            if cache.reach == "state":
                sequence += 2 * layers * cache.entry_bytes
            elif cache.reach_tokens and cache.reach_tokens <= _SHORT_REACH_TOKENS:
                sequence += layers * cache.fixed_bytes
            elif chosen:
                sequence += layers * chosen * cache.entry_bytes
            else:
                past += layers * cache.entry_bytes / cache.tokens_per_entry
    return AttentionWork(pair, token, past, sequence)


#: GEMMs of attention: an input and an output projection; latents have additional ones.
_ATTENTION_GEMMS = {"latent": 4, "latent-sparse": 5, "compressed": 5}


@dataclass(frozen=True, slots=True)
class Linear:
    """Identical linear layers: ``count`` of them, each with ``weights`` in ``gemms`` GEMMs.

    ``weights`` are those of one expert if there are ``experts``, of which each token uses ``active``, with
    ``moved_values`` read and written for each.
    """

    count: int
    weights: float
    gemms: int
    dtype: str
    experts: int = 1
    active: int = 1
    moved_values: float = 0.0

    def read_bytes(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the bytes of weights of one layer that a step of ``tokens`` tokens reads.

        Tokens choose their experts evenly and independently, so 1 − (1 − active/experts)^tokens are needed.
        """
        needed = self.experts * (1 - (1 - self.active / self.experts) ** tokens)
        return np.asarray(needed * self.weights * float(bits_per_value(self.dtype) / 8), np.float64)


def linear_layers(model: ModelSpec, tensor_parallel: int, data_parallel: int = 1) -> Iterator[Linear]:
    """Yield the linear layers of a step on one GPU, the head last; all are split evenly.

    Experts are on the GPUs of all data-parallel ranks: whole ones or parts of each, a GPU reads as much.
    """
    hidden, dtypes = model.hidden_size, model.weights
    for group in model.groups:
        count = len(group.layers)
        if (attention := group.attention) is not None:
            gemms = _ATTENTION_GEMMS.get(attention.kind, 2)
            yield Linear(count, attention.params(hidden) / tensor_parallel, gemms, dtypes.attention)
        if (mlp := group.feed_forward) is not None:
            shared = mlp.shared_params(hidden)
            router_alone = shared == hidden * mlp.experts
            yield Linear(count, shared / tensor_parallel, 1 if router_alone else 2, dtypes.feed_forward)
            if mlp.experts:
                expert = mlp.expert_params(hidden) / (tensor_parallel * data_parallel)
                moved = mlp.moved_values(hidden, tensor_parallel, data_parallel)
                yield Linear(count, expert, 2, dtypes.experts, mlp.experts, mlp.experts_active, moved)
    yield Linear(1, model.vocab_size * hidden / tensor_parallel, 1, dtypes.embedding)


def moved_bytes_per_token(group: LayerGroup, model: ModelSpec, tensor_parallel: int) -> tuple[float, float]:
    """Return the bytes per new token that a layer's small kernels, and its attention, read and write.

    Norms move the hidden state six times, the activation its input twice and its output once; attention its
    queries, output, keys and values.
    """
    small = 6 * model.hidden_size + 3 * _intermediate_size(group.feed_forward) / tensor_parallel
    moved = 0.0
    if group.attention is not None:
        caches = group.attention.caches("bf16", tensor_parallel)
        moved = group.attention.flops_per_pair / tensor_parallel
        moved += sum(cache.entry_bytes for cache in caches if cache.reach != "state")
    return 2 * small, moved


def _intermediate_size(mlp: FeedForward | None) -> int:
    """Return the width of the activation outside of experts, whose rates include their own."""
    if mlp is None:
        return 0
    if isinstance(mlp, DenseFeedForward):
        return mlp.intermediate_size
    return mlp.shared_intermediate_size + mlp.dense_intermediate_size


#: Head and sampler of one more sequence.
SEQUENCE_MS = 0.005
#: Kernels of a layer other than GEMM and attention: two norms, rotary embedding, KV write, activation.
_SMALL_KERNELS = 5

_TOKENS = np.array(sorted({*range(1, 17), *(round(2 ** (half / 2)) for half in range(8, 31))}))


def roofline_step_time(
    model: ModelSpec,
    gpu: GpuSpec,
    tensor_parallel: int,
    links: AllReduces | None = None,
    data_parallel: int = 1,
    stages: int = 1,
) -> ParametricStepTime:
    """Return the sum of a step's kernels, each the smooth maximum of memory and compute time.

    Weights are read once per step, of a mixture only the experts that some token needs. A layer has its
    GEMMs, its attention and five small kernels, with several GPUs two all-reduces over ``links``, those of
    the GPU unless given. Rates and fixed times are the GPU's (``KernelRates``): measured for most, else
    assumed. Of data-parallel ranks each has its own attention; the experts on the GPUs of all, the exchange
    of their tokens and the ranks' agreement are shared. Pipeline ``stages`` share the weights' memory alone.
    Other host time is not included. (The form: Williams et al., CACM 52(4), 2009.) Raises UsageError if the
    weights do not fit, the degree does not divide the heads, or ranks have no experts to share.
    """
    if tensor_parallel < 1 or model.heads % tensor_parallel:
        raise UsageError(
            f"tensor parallel degree does not divide the {model.heads} heads of {model.name}",
            got=str(tensor_parallel),
        )
    kv_capacity_bytes(model, gpu, tensor_parallel, data_parallel=data_parallel, stages=stages)
    tokens = _TOKENS.astype(np.float64)
    rates, work = gpu.kernels, attention_work(model, tensor_parallel)
    attention_per_ms = gpu.bf16_flops * rates.attention_efficiency * tensor_parallel / 1e3
    linears = [*linear_layers(model, tensor_parallel, data_parallel)]
    shared = [linear for linear in linears if linear.experts > 1] if data_parallel > 1 else []
    unshared = [linear for linear in linears if linear not in shared]
    base = np.sum([_linear_ms(linear, gpu, tokens) for linear in unshared], axis=0)
    base += _other_ms(model, gpu, tensor_parallel, tokens) + work.flops_per_token / attention_per_ms * tokens
    reduced = layer_all_reduces_ms(model, gpu, tensor_parallel, tokens, links)
    base = np.maximum.accumulate(base + model.layers * reduced)
    kv_per_ms = gpu.memory_bytes_per_s * rates.kv_efficiency / 1e3
    kv_ms = work.read_bytes_per_past_token * 1e3 / kv_per_ms
    sequence_ms = SEQUENCE_MS + work.read_bytes_per_sequence / kv_per_ms
    points = zip(_TOKENS.tolist(), base.tolist(), strict=True)
    return ParametricStepTime(
        base_points=tuple(Point(float(x), six_digits(y)) for x, y in points),
        pairs_ms_per_million=work.flops_per_pair * 1e6 / attention_per_ms,
        kv_ms_per_thousand=kv_ms,
        kv_mixed_ms_per_thousand=rates.mixed_kv_factor * kv_ms,
        past_ms_per_thousand=kv_ms,
        sequence_ms=sequence_ms,
        sequence_mixed_ms=sequence_ms,
        **(
            _shared(model, gpu, Degrees(tensor_parallel, data_parallel), shared, links)
            if data_parallel > 1
            else {}
        ),
    )


def _shared(
    model: ModelSpec,
    gpu: GpuSpec,
    degrees: Degrees,
    experts: list[Linear],
    links: AllReduces | None,
) -> dict[str, Any]:
    """Return the coefficients of the work that data-parallel ranks share: experts, exchange, agreement."""
    tokens = _TOKENS.astype(np.float64)
    experts_ms = np.sum([_linear_ms(linear, gpu, tokens) for linear in experts], axis=0)
    points = shared_points(model, gpu, degrees, tokens, experts_ms, links)
    return {"shared_ranks": degrees.data_parallel, "shared_points": points}


def head_ms(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, tokens: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the ms of a step's output head on one GPU at each token count."""
    return _linear_ms([*linear_layers(model, tensor_parallel)][-1], gpu, tokens)


def _linear_ms(linear: Linear, gpu: GpuSpec, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ms per step of identical linear layers at each token count.

    GEMMs of one layer have the same operations per byte, so the total of their smooth maxima is that of the
    layer.
    """
    operations = 2 * tokens * linear.active * linear.weights
    read_ms = linear.read_bytes(tokens) / gpu.memory_bytes_per_s * 1e3
    compute_ms = operations / gpu.flops(linear.dtype) * 1e3
    if linear.experts > 1:
        moved_bytes = 2 * tokens * linear.active * linear.moved_values
        moved_ms = moved_bytes / gpu.memory_bytes_per_s * 1e3
        return linear.count * gpu.formats.expert(linear.dtype).layer_ms(read_ms, compute_ms, moved_ms)
    rates = gpu.formats.gemm(linear.dtype) or gpu.kernels
    joined = rates.joined_ms(read_ms, compute_ms)
    return linear.count * (joined + linear.gemms * (rates.gemm_us + gpu.kernels.gap_us) / 1e3)


def _other_ms(
    model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, tokens: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the ms per step of small kernels, and of attention apart from its KV and its products."""
    rates = gpu.kernels
    small_us, attention_us = rates.small_us + rates.gap_us, rates.attention_us + rates.gap_us
    ms = 0 * tokens
    for group in model.groups:
        experts_alone = group.feed_forward is not None and not _intermediate_size(group.feed_forward)
        fixed_us = (_SMALL_KERNELS - experts_alone) * small_us + attention_us
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
    return 2 * all_reduce_ms(links, gpu.link_bytes_per_s, tensor_parallel, tokens * model.hidden_size * 2)
