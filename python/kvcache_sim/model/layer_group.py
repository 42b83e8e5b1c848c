"""Groups of identical layers of a model: their numbers, parts, and weights.

A feed-forward layer is dense or a mixture of experts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.attention import Attention
from kvcache_sim.model.dtypes import bits_per_value


class DenseFeedForward(Value):
    """``matrices`` of hidden × intermediate size: three with a gate, two without."""

    intermediate_size: int
    matrices: int = 3

    kind: ClassVar[str] = "dense"
    experts: ClassVar[int] = 0
    experts_active: ClassVar[int] = 0

    def expert_params(self, hidden_size: int) -> int:
        """Return 0: there are no experts."""
        del hidden_size
        return 0

    def moved_values(self, hidden_size: int, tensor_parallel: int, data_parallel: int) -> float:
        """Return 0: there are no experts."""
        del hidden_size, tensor_parallel, data_parallel
        return 0.0

    @property
    def widest_size(self) -> int:
        """The widest activation of a token."""
        return self.intermediate_size

    def shared_params(self, hidden_size: int) -> int:
        """Return the weights that every token uses."""
        return self.matrices * hidden_size * self.intermediate_size


class MoeFeedForward(Value):
    """A mixture: every token uses ``experts_active`` of ``experts``, and the shared parts.

    ``shared_intermediate_size`` is the total of the shared experts, ``dense_intermediate_size`` an ordinary
    feed-forward in parallel to the mixture; ``latent_size`` > 0: the experts work on a projection of that
    width.
    """

    experts: int
    experts_active: int
    expert_intermediate_size: int
    shared_intermediate_size: int = 0
    dense_intermediate_size: int = 0
    latent_size: int = 0
    matrices: int = 3

    kind: ClassVar[str] = "moe"

    def expert_params(self, hidden_size: int) -> int:
        """Return the weights of one expert."""
        return self.matrices * (self.latent_size or hidden_size) * self.expert_intermediate_size

    def moved_values(self, hidden_size: int, tensor_parallel: int, data_parallel: int) -> float:
        """Return the values that a GPU reads and writes around its experts, per token and active expert.

        Tensor parallelism splits experts, data-parallel ranks hold whole ones and get the tokens of these.
        """
        ends, inside = 2 * (self.latent_size or hidden_size), self.matrices * self.expert_intermediate_size
        if data_parallel > 1:
            return (ends + inside) / (tensor_parallel * data_parallel)
        return ends + inside / tensor_parallel

    @property
    def widest_size(self) -> int:
        """The widest activation of a token outside of its experts."""
        return max(self.shared_intermediate_size, self.dense_intermediate_size)

    def shared_params(self, hidden_size: int) -> int:
        """Return the weights that every token uses: router, shared experts, projections of the latent."""
        always = self.shared_intermediate_size + self.dense_intermediate_size
        return hidden_size * (self.matrices * always + self.experts + 2 * self.latent_size)


FeedForward = DenseFeedForward | MoeFeedForward


_RANGE = r"(\d{1,4})(?:-(\d{1,4})(?::(\d{1,3}))?)?"


class LayerGroup(Value):
    """Identical layers by their numbers from 0; either part may be missing (as in some Mamba blocks)."""

    layers: tuple[int, ...]
    attention: Attention | None
    feed_forward: FeedForward | None


#: One layer's parts.
LayerParts = tuple[Attention | None, FeedForward | None]


def grouped(layers: Sequence[LayerParts]) -> tuple[LayerGroup, ...]:
    """Return the groups of identical layers, in the order of their first layers."""
    numbers: dict[LayerParts, list[int]] = {}
    for number, parts in enumerate(layers):
        numbers.setdefault(parts, []).append(number)
    return tuple(LayerGroup(tuple(found), *parts) for parts, found in numbers.items())


def parse_layers(text: str, where: str) -> tuple[int, ...]:
    """Return the layer numbers of ``0-2, 5, 8-62:2`` (the last: every second one); UsageError otherwise."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(_RANGE, part.strip())
        if match is None or match[3] == "0":
            raise UsageError(
                "not layer numbers", where=where, got=repr(text), expected="such as 0-2, 5 or 8-62:2"
            )
        last = int(match[2] or match[1])
        found += range(int(match[1]), last + 1, int(match[3] or 1))
    if not found or len(set(found)) < len(found):
        raise UsageError("layers missing or named twice", where=where, got=repr(text))
    return tuple(sorted(found))


def layers_text(layers: tuple[int, ...]) -> str:
    """Return layer numbers in the syntax of ``parse_layers``."""
    parts, rest = [], list(layers)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        end = 1
        while end < len(rest) and rest[end] - rest[end - 1] == step:
            end += 1
        if end == 1 or (end == 2 and step > 1):
            parts.append(str(rest.pop(0)))
            continue
        parts.append(f"{rest[0]}-{rest[end - 1]}" + (f":{step}" if step > 1 else ""))
        rest = rest[end:]
    return ", ".join(parts)


class WeightDtypes(Value):
    """The formats of a checkpoint's weights; norms and biases are too few to count separately."""

    attention: str = "bf16"
    feed_forward: str = "bf16"
    experts: str = "bf16"
    embedding: str = "bf16"


class WeightCount(Value):
    """Number of weights in each part of the layers; ``idle_experts`` are those a token does not use."""

    attention: int
    feed_forward: int
    experts: int
    idle_experts: int

    @property
    def total(self) -> int:
        """The total number of weights."""
        return self.attention + self.feed_forward + self.experts

    def size_bytes(self, dtypes: WeightDtypes) -> int:
        """Return the total bytes."""
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
