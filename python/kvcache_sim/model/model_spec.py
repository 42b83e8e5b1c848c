"""A language model as a list of layer groups: its weights, its KV cache, and its operations per token."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kvcache_sim.model.attention import Attention, LayerCache
from kvcache_sim.model.context_length import ContextLength
from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.layer_group import LayerGroup, WeightCount, WeightDtypes, count_weights
from kvcache_sim.values import Value

#: Filters of the logits that a model's ``generation_config.json`` may ask for; empty: none.
SAMPLING = ("", "top-k", "top-p", "top-k top-p")


class ModelSpec(Value):
    """A decoder-only language model.

    ``groups`` hold every layer once. ``kv_dtype`` is the KV cache's format, independent of the weights.
    ``params_total`` and ``params_active`` are counted from the shapes, or stated by the vendor. ``context``
    is the most tokens of a prompt and its answer. ``sampling`` names the filters of its
    ``generation_config.json``, one of ``SAMPLING``.
    """

    name: str
    source: str
    hidden_size: int
    vocab_size: int
    groups: tuple[LayerGroup, ...]
    tied_embeddings: bool = False
    weights: WeightDtypes = WeightDtypes()
    kv_dtype: str = "bf16"
    stated_params: tuple[int, int] | None = None
    context: ContextLength = ContextLength()
    sampling: str = ""

    @property
    def layers(self) -> int:
        """The number of layers."""
        return sum(len(group.layers) for group in self.groups)

    @property
    def heads(self) -> int:
        """Heads that every TP degree must divide; for several kinds their greatest common divisor."""
        return math.gcd(*(attention.split_heads for _, attention in self.attention_layers()))

    def attention_layers(self) -> Iterator[tuple[int, Attention]]:
        """Yield each kind of attention with the number of layers that have it."""
        for group in self.groups:
            if group.attention is not None:
                yield len(group.layers), group.attention

    def caches(self, tensor_parallel: int = 1) -> dict[LayerCache, tuple[int, ...]]:
        """Return the caches of layers on one GPU: each kind with its layers' numbers, first layers first."""
        found: dict[LayerCache, list[int]] = {}
        for group in self.groups:
            if group.attention is not None:
                for cache in group.attention.caches(self.kv_dtype, tensor_parallel):
                    found.setdefault(cache, []).extend(group.layers)
        return {cache: tuple(sorted(layers)) for cache, layers in found.items()}

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV cache that one more token adds to a long sequence, over all GPUs."""
        return self.kv_bytes_per_token_per_gpu(1)

    def kv_bytes_per_token_per_gpu(self, tensor_parallel: int) -> int:
        """Return the bytes that one more token adds on one of ``tensor_parallel`` GPUs.

        KV heads are split, and replicated if there are more GPUs than heads; a latent is on every GPU.
        """
        each = self.caches(tensor_parallel).items()
        return math.ceil(sum(cache.bytes_per_token * len(layers) for cache, layers in each))

    def kv_bytes_fixed_per_gpu(self, tensor_parallel: int) -> int:
        """Return the bytes of a long sequence that do not grow with it: full windows and chunks, states."""
        return sum(cache.fixed_bytes * len(layers) for cache, layers in self.caches(tensor_parallel).items())

    def kv_bytes_per_gpu(self, length_tokens: int, tensor_parallel: int) -> int:
        """Return the KV cache bytes of one sequence of ``length_tokens`` on one GPU."""
        each = self.caches(tensor_parallel).items()
        return sum(cache.bytes_at(length_tokens) * len(layers) for cache, layers in each)

    @property
    def counted_weights(self) -> WeightCount:
        """The weights of the layers by part."""
        return count_weights(self.groups, self.hidden_size)

    @property
    def embedding_params(self) -> int:
        """Weights of the tables over all tokens: the embedding and the head, counted once if tied."""
        return (1 if self.tied_embeddings else 2) * self.vocab_size * self.hidden_size

    @property
    def params_total(self) -> int:
        """The total number of weights."""
        return self.stated_params[0] if self.stated_params else self._counted_params

    @property
    def params_active(self) -> int:
        """The weights that one token uses; in a mixture only its own experts."""
        if self.stated_params:
            return self.stated_params[1]
        return self._counted_params - self.counted_weights.idle_experts

    @property
    def _counted_params(self) -> int:
        return self.counted_weights.total + self.embedding_params

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weights in their formats."""
        layers = self.counted_weights
        elsewhere = self.params_total - layers.total
        return layers.size_bytes(self.weights) + int(elsewhere * bits_per_value(self.weights.embedding) / 8)
