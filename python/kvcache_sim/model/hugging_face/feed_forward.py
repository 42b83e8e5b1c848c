"""Feed-forward layers from a configuration: dense or mixture, by layer."""

from __future__ import annotations

from kvcache_sim.model.hugging_face.fields import Fields
from kvcache_sim.model.hugging_face.recurrent import nemotron_pattern
from kvcache_sim.model.layer_group import DenseFeedForward, FeedForward, MoeFeedForward

_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_ACTIVE = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "top_k_experts",
    "moe_k",
    "moe_topk",
    "moe_top_k",
)
_EVERY = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")
_EXPERT_SIZE = ("moe_intermediate_size", "expert_intermediate_size", "intermediate_size")
#: Nemotron's activation has no gate: two matrices instead of three.
_UNGATED = "relu2"


def _matrices(fields: Fields) -> int:
    return 2 if fields.values.get("mlp_hidden_act") == _UNGATED else 3


def dense(fields: Fields) -> list[FeedForward | None]:
    """Return a gated dense feed-forward in every layer."""
    return [DenseFeedForward(fields.number("intermediate_size"))] * fields.layers


def ungated(fields: Fields) -> list[FeedForward | None]:
    """Return two matrices in every layer."""
    size = fields.number("intermediate_size", "ffn_dim", default=4 * fields.hidden_size)
    return [DenseFeedForward(size, 2)] * fields.layers


def mixture(fields: Fields) -> MoeFeedForward:
    """Return the mixture that a configuration describes."""
    size = fields.number(*_EXPERT_SIZE)
    count = fields.number("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0)
    shared = fields.number(
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "share_expert_dim",
        "shared_intermediate_size",
        default=count * size,
    )
    return MoeFeedForward(
        fields.number(*_EXPERTS),
        fields.number(*_ACTIVE),
        size,
        shared,
        latent_size=fields.number("moe_latent_size", "routed_expert_hidden_size", default=0),
        matrices=_matrices(fields),
    )


def moe(fields: Fields) -> list[FeedForward | None]:
    """Return dense and mixture layers by ``first_k_dense_replace``, ``moe_layer_freq`` and similar fields."""
    if not any(fields.values.get(name) for name in (*_EXPERTS, *_ACTIVE, "moe_intermediate_size")):
        return dense(fields)
    mixed = mixture(fields)
    is_mixed = [_is_mixed(fields, i) for i in range(fields.layers)]
    if all(is_mixed):
        return [mixed] * fields.layers
    size = fields.number("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size")
    plain = DenseFeedForward(size)
    return [mixed if is_moe else plain for is_moe in is_mixed]


def _is_mixed(fields: Fields, layer: int) -> bool:
    pattern = fields.values.get("moe_layer_freq")
    if isinstance(pattern, list):
        return layer < len(pattern) and bool(pattern[layer])
    if layer < fields.number("first_k_dense_replace", "moe_layer_start_index", default=0):
        return False
    last = fields.values.get("moe_layer_end_index")
    if isinstance(last, int) and 0 <= last < layer:
        return False
    if layer in (fields.items("mlp_only_layers") or ()):
        return False
    # DeepSeek counts layers from 0, all others from 1
    if layer % (fields.number("moe_layer_freq", default=1) or 1):
        return False
    every = fields.number(*_EVERY, default=1) or fields.layers + 1
    return (layer + 1) % every == 0


def llama4(fields: Fields) -> list[FeedForward | None]:
    """Return Llama 4's layers: a shared expert in addition to the selected one."""
    size = fields.number("intermediate_size")
    mixed = MoeFeedForward(fields.number(*_EXPERTS), fields.number(*_ACTIVE), size, size)
    plain = DenseFeedForward(fields.number("intermediate_size_mlp"))
    chosen = fields.items("moe_layers")
    if chosen is not None:
        return [mixed if i in chosen else plain for i in range(fields.layers)]
    return [mixed if _is_mixed(fields, i) else plain for i in range(fields.layers)]


def gemma4(fields: Fields) -> list[FeedForward | None]:
    """Return Gemma 4's layers: a mixture in addition to a dense feed-forward, or the latter alone."""
    size = fields.number("intermediate_size")
    if not fields.flag("enable_moe_block"):
        return [DenseFeedForward(size)] * fields.layers
    experts, active = fields.number(*_EXPERTS), fields.number(*_ACTIVE)
    mixed = MoeFeedForward(
        experts, active, fields.number("moe_intermediate_size"), dense_intermediate_size=size
    )
    return [mixed] * fields.layers


def jamba(fields: Fields) -> list[FeedForward | None]:
    """Return Jamba's layers: a mixture every ``expert_layer_period``."""
    size = fields.number("intermediate_size")
    every, first = fields.number("expert_layer_period"), fields.number("expert_layer_offset")
    mixed = MoeFeedForward(fields.number(*_EXPERTS), fields.number(*_ACTIVE), size)
    return [mixed if i % every == first % every else DenseFeedForward(size) for i in range(fields.layers)]


def nemotron_h(fields: Fields) -> list[FeedForward | None]:
    """Return Nemotron-H's layers: only those of the types ``E`` and ``-`` have a feed-forward."""
    pattern = nemotron_pattern(fields)
    plain = DenseFeedForward(fields.number("intermediate_size"), 2)
    mixed = mixture(fields) if "E" in pattern else None
    return [mixed if symbol == "E" else plain if symbol == "-" else None for symbol in pattern]


def granite4(fields: Fields) -> list[FeedForward | None]:
    """Return Granite 4's layers: a mixture and a shared feed-forward, or the latter alone."""
    shared = fields.number("shared_intermediate_size")
    if not fields.number("num_local_experts", default=0):
        return [DenseFeedForward(shared)] * fields.layers
    return [mixture(fields)] * fields.layers
