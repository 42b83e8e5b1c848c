"""Work of a step that the data-parallel ranks of a mixture share: experts, exchange of tokens, agreement."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.layer_group import FeedForward
from kvcache_sim.model.links import AllReduces, all_reduce_ms, exchange_ms, load_links
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.parametric import six_digits
from kvcache_sim.model.points import Point, Points

#: Host time in which ranks agree on a step's tokens and CUDA graph (vLLM's ``coordinate_batch_across_dp``):
#: the one constant of exchanges in decode steps on B300, 0.51 to 0.64 without any one topology
#: (docs/data/topology-left-out.toml).
AGREEMENT_MS = 0.57


class Degrees(Value):
    """The degrees of parallelism of a mixture whose ranks share its experts."""

    tensor_parallel: int
    data_parallel: int

    @property
    def gpus(self) -> int:
        """The GPUs of all ranks."""
        return self.tensor_parallel * self.data_parallel


def expert_layers(model: ModelSpec) -> tuple[int, FeedForward]:
    """Return the number of a model's layers with experts, and the first one's; UsageError if it has none."""
    found = [(group.layers, mlp) for group in model.groups if (mlp := group.feed_forward) and mlp.experts]
    if not found:
        hint = "each rank is an engine of its own: use cluster.machines"
        raise UsageError(f"{model.name} has no experts", hint=hint)
    return sum(len(layers) for layers, _ in found), found[0][1]


def exchanged_ms(
    model: ModelSpec,
    gpu: GpuSpec,
    degrees: Degrees,
    tokens: NDArray[np.float64],
    links: AllReduces | None = None,
) -> NDArray[np.float64]:
    """Return the ms of a step's exchanges at each count of all ranks' tokens, and of the ranks' agreement.

    In each layer with experts the 16-bit hidden states of all ranks are gathered, and the experts' results
    reduced and scattered, over ``links``, those of the GPU unless given. With tensor parallelism each GPU
    holds a part of its rank's tokens, and gathers them afterwards instead of an all-reduce. Raises
    UsageError if the model has no experts.
    """
    layers, _ = expert_layers(model)
    if links is None and gpu.links:
        links = load_links(gpu.links)
    rate, sizes = gpu.link_bytes_per_s, tokens * model.hidden_size * 2
    each = exchange_ms(links, rate, degrees.gpus, sizes)
    tensor_parallel = degrees.tensor_parallel
    if tensor_parallel > 1:
        rank_sizes = sizes / degrees.data_parallel
        gathered = exchange_ms(links, rate, tensor_parallel, rank_sizes) / 2
        each = each + np.maximum(gathered - all_reduce_ms(links, rate, tensor_parallel, rank_sizes), 0.0)
    return AGREEMENT_MS + layers * each


def shared_points(
    model: ModelSpec,
    gpu: GpuSpec,
    degrees: Degrees,
    tokens: NDArray[np.float64],
    experts_ms: NDArray[np.float64],
    links: AllReduces | None = None,
) -> Points:
    """Return the ms of a step's shared work by tokens of all ranks; ``experts_ms``: that of experts alone.

    Raises UsageError as ``exchanged_ms``.
    """
    ms = np.maximum.accumulate(experts_ms + exchanged_ms(model, gpu, degrees, tokens, links))
    return tuple(
        Point(float(n), six_digits(each)) for n, each in zip(tokens.tolist(), ms.tolist(), strict=True)
    )
