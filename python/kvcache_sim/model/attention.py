"""Kinds of attention: the caches, weights and operations of a layer."""

from __future__ import annotations

from typing import Literal

from kvcache_sim.base.values import Value
from kvcache_sim.model.dtypes import size_bytes

#: ``all``: entries stay as long as the sequence; ``window``: only entries of the last tokens; ``chunk``: only
#: entries of the current chunk; ``state``: one entry, for any length.
Reach = Literal["all", "window", "chunk", "state"]


class LayerCache(Value):
    """One kind of entry that a layer caches on one GPU.

    ``entry_bytes`` is the size of an entry; ``tokens_per_entry`` the number of tokens that share it (4 for
    compressed latents); ``reach_tokens`` the window or the chunk, 0 for ``all`` and ``state``. Layers with
    equal caches can share blocks: engines put them into the same KV cache group.
    """

    what: str
    entry_bytes: int
    reach: Reach = "all"
    reach_tokens: int = 0
    tokens_per_entry: int = 1

    def bytes_at(self, length_tokens: int) -> int:
        """Return the cached bytes of a sequence of ``length_tokens``; a chunk counts as full if it can be."""
        if length_tokens <= 0:
            return 0
        if self.reach == "state":
            return self.entry_bytes
        kept = min(length_tokens, self.reach_tokens) if self.reach_tokens else length_tokens
        return kept // self.tokens_per_entry * self.entry_bytes

    @property
    def bytes_per_token(self) -> float:
        """Bytes that one more token adds to a long sequence."""
        return self.entry_bytes / self.tokens_per_entry if self.reach == "all" else 0.0

    @property
    def fixed_bytes(self) -> int:
        """Bytes of a long sequence that do not grow with it: a full window or chunk, or the state."""
        if self.reach == "all":
            return 0
        return self.entry_bytes if self.reach == "state" else self.bytes_at(self.reach_tokens)


class Attention:
    """Token mixing of one layer; the default attends to all earlier tokens."""

    __slots__ = ()
    heads: int

    @property
    def kind(self) -> str:
        """The kind's name in model files."""
        raise NotImplementedError

    @property
    def split_heads(self) -> int:
        """Heads that tensor parallelism splits, the query's or the state's; a degree must divide them."""
        return self.heads

    @property
    def attended_tokens(self) -> int:
        """The most tokens that a query attends to; 0: all earlier tokens."""
        return self.chosen_entries

    @property
    def chosen_entries(self) -> int:
        """The most cached entries that an indexer selects for reading; 0: all."""
        return 0

    @property
    def flops_per_pair(self) -> int:
        """Operations per pair of a query and a key with its value, over all heads."""
        return 0

    @property
    def scan_flops_per_pair(self) -> int:
        """Operations per pair of a query and an earlier token to select the attended tokens."""
        return 0

    def params(self, hidden_size: int) -> int:
        """Return the number of weights of its projections."""
        raise NotImplementedError

    def whole_params(self, hidden_size: int) -> int:
        """Return those of its weights that every GPU has whole; most kinds split all."""
        del hidden_size
        return 0

    def caches(self, kv_dtype: str, tensor_parallel: int) -> tuple[LayerCache, ...]:
        """Return the layer's caches of a sequence on one of ``tensor_parallel`` GPUs."""
        raise NotImplementedError


def heads_per_gpu(heads: int, tensor_parallel: int) -> int:
    """Return the heads on one GPU: split, and replicated if there are more GPUs than heads."""
    return max(1, -(-heads // tensor_parallel))


class HeadAttention(Value, Attention):
    """Keys and values of every KV head: multi-head, grouped-query or multi-query attention.

    A window or a chunk (at most one of them) limits the attended and cached tokens. ``index_key_size`` > 0
    marks a sparse layer that also caches a bf16 index key of that size, on every GPU, and attends to
    ``top_k_tokens``. ``output_gate_size`` is the width of a projection that gates the output, 0 without.
    """

    heads: int
    kv_heads: int
    head_size: int
    value_head_size: int = 0
    window_tokens: int = 0
    chunk_tokens: int = 0
    output_gate_size: int = 0
    index_key_size: int = 0
    top_k_tokens: int = 0

    @property
    def kind(self) -> str:
        """``full``, ``sliding`` or ``chunked``."""
        return "sliding" if self.window_tokens else "chunked" if self.chunk_tokens else "full"

    @property
    def attended_tokens(self) -> int:
        """The window, the chunk or the selected tokens; 0: all."""
        return self.window_tokens or self.chunk_tokens or self.top_k_tokens

    @property
    def chosen_entries(self) -> int:
        """The number of tokens that the index keys select."""
        return self.top_k_tokens

    @property
    def flops_per_pair(self) -> int:
        """Two operations per number of key and value, for every query head."""
        return 2 * self.heads * (self.head_size + self._value_size)

    @property
    def scan_flops_per_pair(self) -> int:
        """Operations of the index keys, 0 without."""
        return 2 * self.kv_heads * self.index_key_size

    @property
    def _value_size(self) -> int:
        return self.value_head_size or self.head_size

    def params(self, hidden_size: int) -> int:
        """Return the weights of query, key, value and output (and the gate of the output)."""
        query = self.heads * self.head_size + self.output_gate_size
        output = self.heads * self._value_size
        return hidden_size * (query + output + self.kv_heads * (self.head_size + self._value_size))

    def caches(self, kv_dtype: str, tensor_parallel: int) -> tuple[LayerCache, ...]:
        """Return the caches of keys and values, and of index keys if there are any."""
        heads = heads_per_gpu(self.kv_heads, tensor_parallel)
        size = size_bytes(heads * (self.head_size + self._value_size), kv_dtype)
        reach: Reach = "window" if self.window_tokens else "chunk" if self.chunk_tokens else "all"
        kept = LayerCache("keys and values", size, reach, self.window_tokens or self.chunk_tokens)
        if not self.index_key_size:
            return (kept,)
        return (kept, LayerCache("index keys", size_bytes(self.index_key_size, "bf16")))


class LinearAttention(Value, Attention):
    """A recurrent state of fixed size: Mamba, gated delta nets (GDN), KDA, lightning attention.

    The state is ``heads`` matrices of ``state_rows`` × ``state_columns``; ``convolution_channels`` keep their
    last ``convolution_kernel`` − 1 inputs in bf16. Both are split by TP. ``projected_size`` is the total
    width of all input projections, ``output_size`` the width of the output projection.
    """

    heads: int
    state_rows: int
    state_columns: int
    projected_size: int
    output_size: int
    state_dtype: str = "fp32"
    convolution_channels: int = 0
    convolution_kernel: int = 0

    @property
    def kind(self) -> str:
        """``linear``."""
        return "linear"

    def params(self, hidden_size: int) -> int:
        """Return the weights of the projections and the convolution."""
        convolution = self.convolution_channels * self.convolution_kernel
        return hidden_size * (self.projected_size + self.output_size) + convolution

    def caches(self, kv_dtype: str, tensor_parallel: int) -> tuple[LayerCache, ...]:
        """Return the state, which has its own dtype."""
        del kv_dtype
        heads = heads_per_gpu(self.heads, tensor_parallel)
        state = size_bytes(heads * self.state_rows * self.state_columns, self.state_dtype)
        channels = -(-self.convolution_channels // tensor_parallel)
        last_inputs = size_bytes(channels * max(self.convolution_kernel - 1, 0), "bf16")
        return (LayerCache("state", state + last_inputs, "state"),)
