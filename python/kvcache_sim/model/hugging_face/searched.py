"""Layers that an architecture search made individually different (Nemotron-NAS): ``block_configs``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.attention import HeadAttention
from kvcache_sim.model.hugging_face.fields import Fields
from kvcache_sim.model.layer_group import DenseFeedForward, FeedForward

#: Feed-forward sizes are rounded up to a multiple of this.
_MULTIPLE = 256


def attention(fields: Fields) -> list[HeadAttention | None]:
    """Return each layer's attention, None if the search removed it."""
    heads = fields.number("num_attention_heads")
    size = fields.hidden_size // heads
    found: list[HeadAttention | None] = []
    for block in _blocks(fields, "attention"):
        if block.get("no_op") or block.get("replace_with_linear"):
            found.append(None)
            continue
        block_fields = Fields(block, f"{fields.where} block_configs")
        full = HeadAttention(heads, heads // max(block_fields.number("n_heads_in_group"), 1), size)
        found.append(replace(full, window_tokens=block_fields.number("window_length", default=0)))
    return found


def feed_forward(fields: Fields) -> list[FeedForward | None]:
    """Return each layer's feed-forward, None if the search removed it."""
    found: list[FeedForward | None] = []
    for block in _blocks(fields, "ffn"):
        times = block.get("ffn_mult")
        if block.get("no_op") or block.get("replace_with_linear"):
            found.append(None)
        elif not isinstance(times, (int, float)):
            raise UsageError("no ffn_mult", where=f"{fields.where} block_configs")
        else:
            size = int(2 * times * fields.hidden_size / 3)
            found.append(DenseFeedForward(-(-size // _MULTIPLE) * _MULTIPLE))
    return found


def _blocks(fields: Fields, part: str) -> list[dict[str, Any]]:
    blocks = fields.each_layer("block_configs")
    if blocks is None:
        raise UsageError("no block_configs", where=fields.where)
    parts = [block.get(part) if isinstance(block, dict) else None for block in blocks]
    if not all(isinstance(found, dict) for found in parts):
        raise UsageError(f"a block without {part}", where=f"{fields.where} block_configs")
    return [dict(found) for found in parts if found is not None]
