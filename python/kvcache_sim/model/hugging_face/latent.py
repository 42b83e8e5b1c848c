"""Latent attention from a configuration: DeepSeek-V2, V3, V3.2 and V4, Kimi-K2, GLM-5."""

from __future__ import annotations

from kvcache_sim.errors import UsageError
from kvcache_sim.model.hugging_face.fields import Fields
from kvcache_sim.model.latent_attention import CompressedAttention, Indexer, LatentAttention


def latent_attention(fields: Fields) -> LatentAttention:
    """Return MLA, with an indexer where ``index_topk`` is given."""
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
    """Return MLA in every layer."""
    return [latent_attention(fields)] * fields.layers


def indexer_of(fields: Fields) -> Indexer:
    """Return the indexer of sparse attention."""
    return Indexer(
        fields.number("index_n_heads"), fields.number("index_head_dim"), fields.number("index_topk")
    )


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
