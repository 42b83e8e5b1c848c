"""A language model as a list of layer groups: its weights, its KV cache, and its operations per token."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.attention import Attention, LayerCache
from kvcache_sim.model.dtypes import bits_per_value
from kvcache_sim.model.layer_group import LayerGroup, WeightCount, WeightDtypes, count_weights

#: Fields that state a length; the smallest one holds.
LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
#: Fields that scale or replace a length.
ROPE_KEYS = ("rope_scaling", "rope_parameters", "original_max_position_embeddings")
#: Length of a model whose configuration states none.
UNKNOWN_LENGTH = 2048
#: Kinds of scaled RoPE whose models state the scaled length already.
_SCALED_ALREADY = frozenset({"longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})


class ContextLength(Value):
    """The most tokens of a prompt and its answer: by default, and at all (None: not known)."""

    default_tokens: int = UNKNOWN_LENGTH
    longest_tokens: int | None = None


def context_length(values: Mapping[str, Any], where: str) -> ContextLength:
    """Return the context length that the fields of a language model state.

    The smallest length, but ``model_max_length`` before all others, times the factor of a RoPE scaling that
    the length does not include yet. A model with long RoPE is served at its original length unless more is
    asked for. The tokenizer's length limits pooling models only. Raises UsageError for a field that is no
    length.
    """
    lengths = {key: _length(values[key], key, where) for key in LENGTH_KEYS if values.get(key) is not None}
    stated = lengths.get("model_max_length") or min(lengths.values(), default=None)
    ropes = list(_ropes(values, where))
    factors = [factor for kind, factor in ropes if kind not in _SCALED_ALREADY and factor is not None]
    is_gemma3 = "gemma3" in str(values.get("model_type", ""))
    factor = 1.0 if is_gemma3 or not factors else factors[-1]
    derived = int((UNKNOWN_LENGTH if stated is None else stated) * factor)
    longest = None if stated is None else derived
    default = derived
    original = values.get("original_max_position_embeddings")
    if any(kind == "longrope" for kind, _ in ropes) and original is not None:
        default = _length(original, "original_max_position_embeddings", where)
    if longest is not None:
        longest = max(longest, lengths.get("model_max_length", 0))
    return ContextLength(default, longest)


def _length(value: object, key: str, where: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{key} is no length", where=where, got=repr(value), expected="tokens, at least 1")
    return value


def _ropes(values: Mapping[str, Any], where: str) -> Iterator[tuple[str, float | None]]:
    """Yield the kind and the factor of each RoPE: one, or one per kind of layers."""
    given = values.get("rope_parameters") or values.get("rope_scaling")
    if given is None or given == {}:
        return
    if not isinstance(given, dict):
        raise UsageError("rope_scaling is no table", where=where, got=repr(given))
    nested = all(isinstance(rope, dict) or rope is None for rope in given.values())
    for rope in [rope for rope in given.values() if rope] if nested else [given]:
        factor = rope.get("factor")
        number = isinstance(factor, int | float) and not isinstance(factor, bool)
        if factor is not None and not (number and 0 < factor < float("inf")):
            raise UsageError("RoPE's factor is no number above 0", where=where, got=repr(factor))
        kind = str(rope.get("rope_type") or rope.get("type") or "default")
        yield "longrope" if kind == "su" else kind, factor


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

    def with_dtypes(self, weight_dtype: str, kv_dtype: str) -> ModelSpec:
        """Return the model with other formats of weights and KV; an empty name keeps its own format."""
        weights = self.weights
        if weight_dtype:
            weights = WeightDtypes(weight_dtype, weight_dtype, weight_dtype, weights.embedding)
        return replace(self, weights=weights, kv_dtype=kv_dtype or self.kv_dtype)

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
