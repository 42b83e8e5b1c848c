"""Attention over latents: MLA, with the indexer of sparse attention, and compressed latents."""

from __future__ import annotations

from kvcache_sim.base.values import Value
from kvcache_sim.model.attention import Attention, LayerCache
from kvcache_sim.model.dtypes import FP8_DS_MLA, size_bytes

#: FlashMLA stores 512 + 64 numbers as 512 FP8, four fp32 scales and 64 bf16 (656 bytes), and the 448 + 64 of
#: compressed latents as 448 FP8, 64 bf16 and eight bytes of scales (584).
_DS_MLA_SCALE_BYTES = 16
_DS_MLA_COMPRESSED_SCALE_BYTES = 8
#: The scale of one FP8 index key.
_INDEX_SCALE_BYTES = 4


class Indexer(Value):
    """Selects the tokens that sparse attention attends to: one key per token, scored by ``heads`` queries.

    ``heads`` and ``key_size`` 0: an earlier layer's selection, without keys or weights of its own (GLM-5.2).
    """

    top_k_tokens: int
    heads: int = 0
    key_size: int = 0

    def params(self, hidden_size: int, query_rank: int) -> int:
        """Return the weights of queries, key and head weights."""
        return query_rank * self.heads * self.key_size + hidden_size * (self.key_size + self.heads)


class LatentAttention(Value, Attention):
    """Multi-head latent attention: one latent per token and layer instead of keys and values, on every GPU.

    The latent has ``latent_size`` numbers and ``rope_size`` more for the position (DeepSeek-V2,
    arXiv:2405.04434, section 2.1). ``query_rank`` 0: queries are not compressed. With an ``indexer``
    (DeepSeek-V3.2) there is also an FP8 index key, and the position stays in bf16 under an FP8 KV cache.
    """

    heads: int
    latent_size: int
    rope_size: int
    key_size: int
    value_size: int
    query_rank: int = 0
    indexer: Indexer | None = None

    @property
    def kind(self) -> str:
        """``latent`` or ``latent-sparse``."""
        return "latent-sparse" if self.indexer else "latent"

    @property
    def chosen_entries(self) -> int:
        """Selected entries: equal to the selected tokens, as every token has one entry."""
        return self.indexer.top_k_tokens if self.indexer else 0

    @property
    def flops_per_pair(self) -> int:
        """Two operations per number of key and value, for every head."""
        return 2 * self.heads * (self.key_size + self.rope_size + self.value_size)

    @property
    def scan_flops_per_pair(self) -> int:
        """Operations of the index keys, 0 without an indexer."""
        return 2 * self.indexer.heads * self.indexer.key_size if self.indexer else 0

    def params(self, hidden_size: int) -> int:
        """Return the weights of query, latent and output, and the indexer's."""
        width = self.heads * (self.key_size + self.rope_size)
        query = self.query_rank * (hidden_size + width) if self.query_rank else hidden_size * width
        latent = hidden_size * (self.latent_size + self.rope_size)
        expand = self.latent_size * self.heads * (self.key_size + self.value_size)
        index = self.indexer.params(hidden_size, self.query_rank) if self.indexer else 0
        return query + latent + expand + self.heads * self.value_size * hidden_size + index

    def whole_params(self, hidden_size: int) -> int:
        """Return the weights that make latents, and the indexer's."""
        made = hidden_size * (self.query_rank + self.latent_size + self.rope_size)
        return made + (self.indexer.params(hidden_size, self.query_rank) if self.indexer else 0)

    def caches(self, kv_dtype: str, tensor_parallel: int) -> tuple[LayerCache, ...]:
        """Return the latent, and the index key if there is one; TP replicates both."""
        del tensor_parallel
        if self.indexer is None:
            return (LayerCache("latent", size_bytes(self.latent_size + self.rope_size, kv_dtype)),)
        latent = size_bytes(self.latent_size, kv_dtype) + size_bytes(self.rope_size, "bf16")
        latent += _DS_MLA_SCALE_BYTES if kv_dtype == FP8_DS_MLA else 0
        if not self.indexer.key_size:
            return (LayerCache("latent", latent),)
        index = size_bytes(self.indexer.key_size, "fp8") + _INDEX_SCALE_BYTES
        return LayerCache("latent", latent), LayerCache("index keys", index)


class CompressedAttention(Value, Attention):
    """DeepSeek-V4's attention: a window of latents, and one compressed latent for every ``ratio`` tokens.

    ``ratio`` 0: the window alone. Compression keeps fp32 running sums of values and scores for one window of
    ``ratio`` tokens, two if windows overlap (an engine's buffers are up to twice as large there). With an
    ``indexer`` every compressed latent has an fp4 index key. TP replicates all of them.
    """

    heads: int
    head_size: int
    window_tokens: int
    query_rank: int
    output_groups: int
    output_rank: int
    rope_size: int = 64
    ratio: int = 0
    indexer: Indexer | None = None

    @property
    def kind(self) -> str:
        """``compressed``."""
        return "compressed"

    @property
    def attended_tokens(self) -> int:
        """The window and the selected latents; without an indexer the window (others are scanned)."""
        return self.window_tokens + self.chosen_entries

    @property
    def chosen_entries(self) -> int:
        """The number of compressed latents that the indexer selects; 0: all."""
        return self.indexer.top_k_tokens if self.indexer else 0

    @property
    def flops_per_pair(self) -> int:
        """Two operations per number of the latent as key and as value, for every head."""
        return 4 * self.heads * self.head_size

    @property
    def scan_flops_per_pair(self) -> int:
        """Operations for one token's share of its compressed latent: its index key, or the latent itself."""
        if not self.ratio:
            return 0
        if self.indexer:
            return 2 * self.indexer.heads * self.indexer.key_size // self.ratio
        return self.flops_per_pair // self.ratio

    @property
    def windows(self) -> int:
        """Windows of ``ratio`` tokens that one compressed latent combines."""
        return 2 if self.indexer else 1

    def params(self, hidden_size: int) -> int:
        """Return the weights of query, latent, grouped output, compressor and indexer."""
        width = self.heads * self.head_size
        query = self.query_rank * (hidden_size + width)
        output = self.output_rank * (width + self.output_groups * hidden_size)
        compressor = 2 * self.windows * self.head_size * hidden_size if self.ratio else 0
        index = 0
        if self.indexer:
            index = self.indexer.params(hidden_size, self.query_rank)
            index += 2 * self.windows * self.indexer.key_size * hidden_size
        return query + hidden_size * self.head_size + output + compressor + index

    def caches(self, kv_dtype: str, tensor_parallel: int) -> tuple[LayerCache, ...]:
        """Return the window, the compressed latents, their index keys, and the compressor's sums."""
        del tensor_parallel
        entry = size_bytes(self.head_size, kv_dtype)
        if kv_dtype == FP8_DS_MLA:
            entry += self.rope_size + _DS_MLA_COMPRESSED_SCALE_BYTES
        window = LayerCache("window", entry, "window", self.window_tokens)
        if not self.ratio:
            return (window,)
        sums = 2 * self.windows * self.ratio
        values = self.head_size + (self.indexer.key_size if self.indexer else 0)
        compressed = LayerCache("compressed latents", entry, tokens_per_entry=self.ratio)
        state = LayerCache("compressor sums", size_bytes(sums * values, "fp32"), "state")
        if self.indexer is None:
            return window, compressed, state
        index = size_bytes(self.indexer.key_size, "fp4")
        if kv_dtype == FP8_DS_MLA:
            index = size_bytes(self.indexer.key_size, "fp8") + _INDEX_SCALE_BYTES
        return window, compressed, LayerCache("index keys", index, tokens_per_entry=self.ratio), state
