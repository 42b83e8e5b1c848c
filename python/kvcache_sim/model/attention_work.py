"""What attention computes and reads in one step, over all layers of a model."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.model.model_spec import ModelSpec

#: Up to this many tokens a window, chunk or choice counts as full for every token, as few contexts are
#: shorter; a longer one counts as attention to all, as few contexts are longer. A step's time is linear in
#: what it reads.
_SHORT_REACH_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """Operations on all GPUs together, bytes on one of them.

    ``flops_per_pair`` for every new token and token before it, ``flops_per_token`` for every new token;
    ``read_bytes_per_past_token`` for every token of KV, ``read_bytes_per_sequence`` for every sequence
    (windows, chosen entries, and states, which are read and written).
    """

    flops_per_pair: int
    flops_per_token: int
    read_bytes_per_past_token: float
    read_bytes_per_sequence: int


def attention_work(model: ModelSpec, tensor_parallel: int) -> AttentionWork:
    """Return what a model's attention costs at a TP degree."""
    pair = token = sequence = 0
    past = 0.0
    for layers, attention in model.attention_layers():
        short = 0 < attention.attended_tokens <= _SHORT_REACH_TOKENS
        products = layers * attention.flops_per_pair
        pair += layers * attention.scan_flops_per_pair + (0 if short else products)
        token += attention.attended_tokens * products if short else 0
        for cache in attention.caches(model.kv_dtype, tensor_parallel):
            chosen = attention.chosen_entries if cache.what != "index keys" else 0
            if cache.reach == "state":
                sequence += 2 * layers * cache.entry_bytes
            elif cache.reach_tokens and cache.reach_tokens <= _SHORT_REACH_TOKENS:
                sequence += layers * cache.fixed_bytes
            elif chosen:
                sequence += layers * chosen * cache.entry_bytes
            else:
                past += layers * cache.entry_bytes / cache.tokens_per_entry
    return AttentionWork(pair, token, past, sequence)
