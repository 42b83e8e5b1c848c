"""Attention from a configuration: keys and values per head, or latents (DeepSeek, Kimi-K2, GLM-5)."""

from __future__ import annotations

from dataclasses import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.attention import HeadAttention
from kvcache_sim.model.hugging_face.fields import Fields
from kvcache_sim.model.latent_attention import CompressedAttention, Indexer, LatentAttention


def head_attention(fields: Fields) -> HeadAttention:
    """Return the full attention of a configuration: heads, KV heads and head size."""
    heads = fields.number("num_attention_heads", "n_head")
    size = fields.number("head_dim", "attention_head_dim", default=fields.hidden_size // max(heads, 1))
    gate = heads * size if fields.flag("attn_output_gate") or fields.flag("use_head_wise_attn_gate") else 0
    kv_heads = fields.number("num_key_value_heads", "num_attention_groups", default=heads)
    value_size = fields.number("v_head_dim", default=0)
    return HeadAttention(heads, kv_heads, size, value_size, output_gate_size=gate)


def plain(fields: Fields) -> list[HeadAttention]:
    """Return each layer's attention, by ``layer_types`` or with one window for all layers."""
    full = head_attention(fields)
    types = fields.each_layer("layer_types")
    if types is not None:
        return [_of_type(full, str(kind), fields) for kind in types]
    window = fields.number("sliding_window", default=0) if fields.flag("use_sliding_window", True) else 0
    if "max_window_layers" in fields.values and window:
        first = fields.number("max_window_layers")
        return [replace(full, window_tokens=window if i >= first else 0) for i in range(fields.layers)]
    return [replace(full, window_tokens=window)] * fields.layers


def _of_type(full: HeadAttention, kind: str, fields: Fields) -> HeadAttention:
    if kind == "full_attention":
        return full
    if kind == "sliding_attention":
        return replace(full, window_tokens=fields.number("sliding_window"))
    if kind == "chunked_attention":
        return replace(full, chunk_tokens=fields.number("attention_chunk_size"))
    raise UsageError("unknown layer type", where=fields.where, got=repr(kind))


def unwindowed(fields: Fields) -> list[HeadAttention]:
    """Return full attention in all layers: the configuration has a window that is not used."""
    return [head_attention(fields)] * fields.layers


def alternating(fields: Fields) -> list[HeadAttention]:
    """Return a window in every layer except each ``sliding_window_pattern``-th (Gemma 2: 2, Gemma 3: 6)."""
    if fields.items("layer_types") is not None:
        return plain(fields)
    full = head_attention(fields)
    every = fields.number("sliding_window_pattern", "_sliding_window_pattern")
    window = replace(full, window_tokens=fields.number("sliding_window"))
    return [full if (i + 1) % every == 0 else window for i in range(fields.layers)]


def llama4(fields: Fields) -> list[HeadAttention]:
    """Return chunks in all layers except those without positions (every fourth)."""
    full = head_attention(fields)
    chunk = replace(full, chunk_tokens=fields.number("attention_chunk_size"))
    # an empty list is as none, in the vendor's code too
    if fields.items("no_rope_layers"):
        return [chunk if uses else full for uses in fields.each_layer("no_rope_layers") or ()]
    every = fields.number("no_rope_layer_interval", default=4)
    return [full if (i + 1) % every == 0 else chunk for i in range(fields.layers)]


def gemma4(fields: Fields) -> list[HeadAttention]:
    """Return windows, and full layers with separate heads; layers that share KV have no cache."""
    if fields.number("num_kv_shared_layers", default=0):
        raise UsageError("layers that share KV are not supported", f"{fields.where} num_kv_shared_layers")
    sliding = replace(head_attention(fields), window_tokens=fields.number("sliding_window"))
    size = fields.number("global_head_dim", default=sliding.head_size)
    kv_heads = fields.number("num_global_key_value_heads", default=sliding.kv_heads)
    full = HeadAttention(sliding.heads, kv_heads, size)
    types = fields.each_layer("layer_types")
    if types is None:
        raise UsageError("no layer_types", where=fields.where)
    return [full if kind == "full_attention" else sliding for kind in types]


def mimo_v2(fields: Fields) -> list[HeadAttention]:
    """Return MiMo-V2's layers: a pattern of 0 (full) and 1 (sliding), each with separate heads."""
    pattern = fields.each_layer("hybrid_layer_pattern")
    if pattern is None:
        raise UsageError("no hybrid_layer_pattern", where=fields.where)
    size, value = fields.number("head_dim"), fields.number("v_head_dim")
    full = HeadAttention(
        fields.number("num_attention_heads"), fields.number("num_key_value_heads"), size, value
    )
    sliding = HeadAttention(
        fields.number("swa_num_attention_heads", default=full.heads),
        fields.number("swa_num_key_value_heads", default=full.kv_heads),
        fields.number("swa_head_dim", default=size),
        fields.number("swa_v_head_dim", default=value),
        window_tokens=fields.number("sliding_window", "sliding_window_size"),
    )
    return [sliding if kind else full for kind in pattern]


def minimax_m3(fields: Fields) -> list[HeadAttention]:
    """Return MiniMax-M3's layers: sparse ones select blocks with an index key per KV head."""
    full = head_attention(fields)
    sparse = fields.part("sparse_attention_config")
    pattern = sparse.items("sparse_attention_freq")
    if pattern is None:
        raise UsageError("no sparse_attention_freq", where=sparse.where)
    keys = sparse.number("sparse_index_dim")
    chosen = sparse.number("sparse_topk_blocks") * sparse.number("sparse_block_size")
    indexed = replace(full, index_key_size=keys, top_k_tokens=chosen)
    return [indexed if kind else full for kind in pattern[: fields.layers]]


def latent_attention(fields: Fields) -> LatentAttention:
    """Return MLA, with an indexer if ``index_topk`` is given."""
    indexer = indexer_of(fields) if "index_topk" in fields.values else None
    return LatentAttention(
        heads=fields.number("num_attention_heads"),
        latent_size=fields.number("kv_lora_rank"),
        rope_size=fields.number("qk_rope_head_dim"),
        key_size=fields.number("qk_nope_head_dim"),
        value_size=fields.number("v_head_dim"),
        query_rank=fields.number("q_lora_rank", default=0),
        indexer=indexer,
    )


def latent(fields: Fields) -> list[LatentAttention]:
    """Return MLA in every layer; by ``indexer_types`` some share an earlier layer's selection."""
    attention, kinds = latent_attention(fields), fields.each_layer("indexer_types")
    if attention.indexer is None or kinds is None:
        return [attention] * fields.layers
    shared = replace(attention, indexer=replace(attention.indexer, heads=0, key_size=0))
    return [shared if kind == "shared" else attention for kind in kinds]


def usual(fields: Fields) -> list[LatentAttention] | list[HeadAttention]:
    """Return the attention that the usual fields describe: MLA by ``kv_lora_rank``, else heads."""
    return latent(fields) if "kv_lora_rank" in fields.values else plain(fields)


def indexer_of(fields: Fields) -> Indexer:
    """Return the indexer of sparse attention."""
    heads, size = fields.number("index_n_heads"), fields.number("index_head_dim")
    return Indexer(fields.number("index_topk"), heads, size)


def compressed(fields: Fields) -> list[CompressedAttention]:
    """Return DeepSeek-V4's layers by their ``compress_ratios``; those of ratio 4 have an indexer."""
    ratios = fields.each_layer("compress_ratios")
    if ratios is None:
        raise UsageError("no compress_ratios", where=fields.where)
    indexer = indexer_of(fields)
    return [
        CompressedAttention(
            heads=fields.number("num_attention_heads"),
            head_size=fields.number("head_dim"),
            window_tokens=fields.number("sliding_window"),
            query_rank=fields.number("q_lora_rank"),
            output_groups=fields.number("o_groups"),
            output_rank=fields.number("o_lora_rank"),
            rope_size=fields.number("qk_rope_head_dim"),
            ratio=int(ratio),
            indexer=indexer if ratio == 4 else None,
        )
        for ratio in ratios
    ]
