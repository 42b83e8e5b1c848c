"""The linear layers of one step of a model on each of the GPUs of a TP degree, as GEMMs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.feed_forward import DenseFeedForward, FeedForward
from kvcache_sim.model.layer_group import LayerGroup
from kvcache_sim.model.model_spec import ModelSpec

#: GEMMs of attention before and after it: one each way; latents are made and opened by their own.
_ATTENTION_GEMMS = {"latent": 4, "latent-sparse": 5, "compressed": 5}


@dataclass(frozen=True, slots=True)
class Linear:
    """Alike linear layers: ``count`` of them, each with so many ``weights`` in ``gemms`` GEMMs.

    ``weights`` are those of one expert where there are ``experts``, of which each token uses ``active``.
    """

    count: int
    weights: float
    gemms: int
    dtype: str
    experts: int = 1
    active: int = 1

    def read_bytes(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the bytes of weights of one layer that a step of so many tokens reads.

        Tokens choose their experts evenly and independently, so 1 − (1 − active/experts)^tokens are needed.
        """
        needed = self.experts * (1 - (1 - self.active / self.experts) ** tokens)
        return np.asarray(needed * self.weights * float(bits_per_value(self.dtype) / 8), np.float64)


def linear_layers(model: ModelSpec, tensor_parallel: int) -> Iterator[Linear]:
    """Yield the linear layers of a step on one GPU, the head last; all are split evenly."""
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
                expert = mlp.expert_params(hidden) / tensor_parallel
                yield Linear(count, expert, 2, dtypes.experts, mlp.experts, mlp.experts_active)
    yield Linear(1, model.vocab_size * hidden / tensor_parallel, 1, dtypes.embedding)


def moved_bytes_per_token(group: LayerGroup, model: ModelSpec, tensor_parallel: int) -> tuple[float, float]:
    """Return what a layer's small kernels, and its attention, read and write of each new token, in bytes.

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
    if mlp is None:
        return 0
    if isinstance(mlp, DenseFeedForward):
        return mlp.intermediate_size
    always = mlp.shared_intermediate_size + mlp.dense_intermediate_size
    return mlp.experts_active * mlp.expert_intermediate_size + always
