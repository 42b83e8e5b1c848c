"""Weights of a model by part, counted from the shapes of its layers."""

from __future__ import annotations

from collections.abc import Iterable

from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.layer_group import LayerGroup
from kvcache_sim.values import dataclass


@dataclass(frozen=True, slots=True)
class WeightDtypes:
    """The formats of a checkpoint's weights; norms and biases are too few to count apart."""

    attention: str = "bf16"
    feed_forward: str = "bf16"
    experts: str = "bf16"
    embedding: str = "bf16"


@dataclass(frozen=True, slots=True)
class WeightCount:
    """How many weights each part of the layers has; ``idle_experts`` are those a token does not use."""

    attention: int
    feed_forward: int
    experts: int
    idle_experts: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.attention + self.feed_forward + self.experts

    def size_bytes(self, dtypes: WeightDtypes) -> int:
        """Return the bytes of all of them."""
        bits = (
            self.attention * bits_per_value(dtypes.attention)
            + self.feed_forward * bits_per_value(dtypes.feed_forward)
            + self.experts * bits_per_value(dtypes.experts)
        )
        return int(bits / 8)


def count_weights(groups: Iterable[LayerGroup], hidden_size: int) -> WeightCount:
    """Return the weights of all layers."""
    attention = shared = experts = idle = 0
    for group in groups:
        layers = len(group.layers)
        if group.attention is not None:
            attention += layers * group.attention.params(hidden_size)
        if (mlp := group.feed_forward) is not None:
            expert = mlp.expert_params(hidden_size)
            shared += layers * mlp.shared_params(hidden_size)
            experts += layers * mlp.experts * expert
            idle += layers * (mlp.experts - mlp.experts_active) * expert
    return WeightCount(attention, shared, experts, idle)
