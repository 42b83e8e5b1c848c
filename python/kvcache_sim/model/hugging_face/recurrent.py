"""Layers with a recurrent state from a configuration: GDN, KDA, Mamba and lightning attention."""

from __future__ import annotations

from collections.abc import Callable

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.attention import Attention, LinearAttention
from kvcache_sim.model.hugging_face.attention import head_attention, latent_attention
from kvcache_sim.model.hugging_face.fields import Fields

_STATE_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def _state_dtype(fields: Fields, *names: str) -> str:
    given = next((fields.values[name] for name in names if fields.values.get(name)), "float32")
    if given not in _STATE_DTYPES:
        raise UsageError("unknown dtype of the state", where=f"{fields.where} {names[0]}", got=repr(given))
    return _STATE_DTYPES[given]


def delta_net(fields: Fields) -> list[Attention]:
    """Return Qwen3-Next's and Qwen3.5's layers: gated delta nets, every fourth full attention."""
    key_heads, key_size = fields.number("linear_num_key_heads"), fields.number("linear_key_head_dim")
    heads, size = fields.number("linear_num_value_heads"), fields.number("linear_value_head_dim")
    keys, values = key_heads * key_size, heads * size
    linear = LinearAttention(
        heads,
        key_size,
        size,
        projected_size=2 * keys + 2 * values + 2 * heads,
        output_size=values,
        state_dtype=_state_dtype(fields, "mamba_ssm_dtype"),
        convolution_channels=2 * keys + values,
        convolution_kernel=fields.number("linear_conv_kernel_dim"),
    )
    full = head_attention(fields)
    types = fields.each_layer("layer_types")
    if types is None:
        every = fields.number("full_attention_interval")
        return [full if (i + 1) % every == 0 else linear for i in range(fields.layers)]
    return [full if kind == "full_attention" else linear for kind in types]


def kimi_linear(fields: Fields) -> list[Attention]:
    """Return Kimi's layers: KDA, and MLA in ``full_attn_layers`` (counted from 1)."""
    linear_fields = fields.part("linear_attn_config")
    heads, size = linear_fields.number("num_heads"), linear_fields.number("head_dim")
    width = heads * size
    linear = LinearAttention(
        heads,
        size,
        size,
        projected_size=3 * width + 2 * size + heads,
        output_size=width,
        convolution_channels=3 * width,
        convolution_kernel=linear_fields.number("short_conv_kernel_size"),
    )
    full = latent_attention(fields)
    numbers = linear_fields.items("full_attn_layers")
    if numbers is None:
        raise UsageError("no full_attn_layers", where=linear_fields.where)
    return [full if i + 1 in numbers else linear for i in range(fields.layers)]


def mamba2(fields: Fields) -> LinearAttention:
    """Return a Mamba-2 layer (Nemotron-H, Bamba, Granite 4, Falcon-H1)."""
    heads = fields.number("mamba_num_heads", "mamba_n_heads", "num_heads")
    width = heads * fields.number("mamba_head_dim", "mamba_d_head", "head_dim")
    state = fields.number("ssm_state_size", "mamba_d_state", "state_size")
    groups = fields.number("n_groups", "mamba_n_groups")
    channels = width + 2 * groups * state
    return LinearAttention(
        heads,
        width // heads,
        state,
        projected_size=width + channels + heads,
        output_size=width,
        state_dtype=_state_dtype(fields, "mamba_ssm_cache_dtype"),
        convolution_channels=channels,
        convolution_kernel=fields.number("conv_kernel", "mamba_d_conv"),
    )


def mamba1(fields: Fields) -> LinearAttention:
    """Return a Mamba layer (Jamba): a separate state for every channel."""
    width = fields.number("mamba_expand") * fields.hidden_size
    state, rank = fields.number("mamba_d_state"), fields.number("mamba_dt_rank", default=0)
    rank = rank or -(-fields.hidden_size // 16)
    projected = 2 * width + width * (2 * rank + 2 * state) // fields.hidden_size
    return LinearAttention(
        width,
        1,
        state,
        projected_size=projected,
        output_size=width,
        convolution_channels=width,
        convolution_kernel=fields.number("mamba_d_conv"),
    )


def jamba(fields: Fields) -> list[Attention]:
    """Return Jamba's layers: Mamba, and attention every ``attn_layer_period``."""
    every, first = fields.number("attn_layer_period"), fields.number("attn_layer_offset")
    full, state = head_attention(fields), mamba1(fields)
    return [full if i % every == first % every else state for i in range(fields.layers)]


def by_layer_types(fields: Fields) -> list[Attention]:
    """Return Granite 4's layers: ``layer_types`` of ``mamba`` and ``attention``."""
    types = fields.each_layer("layer_types")
    if types is None:
        raise UsageError("no layer_types", where=fields.where)
    return [mamba2(fields) if kind == "mamba" else head_attention(fields) for kind in types]


def bamba(fields: Fields) -> list[Attention]:
    """Return Bamba's layers: Mamba-2, and attention at ``attn_layer_indices``."""
    numbers = fields.items("attn_layer_indices")
    if numbers is None:
        raise UsageError("no attn_layer_indices", where=fields.where)
    return [head_attention(fields) if i in numbers else mamba2(fields) for i in range(fields.layers)]


def lightning(fields: Fields) -> list[Attention]:
    """Return MiniMax-01's layers: ``attn_type_list`` of 0 (lightning) and 1 (full)."""
    types = fields.each_layer("attn_type_list")
    if types is None:
        raise UsageError("no attn_type_list", where=fields.where)
    full = head_attention(fields)
    width = full.heads * full.head_size
    linear = LinearAttention(full.heads, full.head_size, full.head_size, 4 * width, width)
    return [full if kind else linear for kind in types]


#: Nemotron-H's pattern has one character per layer: a mixer or a feed-forward.
_PATTERN: dict[str, Callable[[Fields], Attention]] = {"M": mamba2, "*": head_attention}


def nemotron_h(fields: Fields) -> list[Attention | None]:
    """Return Nemotron-H's layers; those of the types ``E`` and ``-`` have no attention."""
    pattern = nemotron_pattern(fields)
    made = {symbol: read(fields) for symbol, read in _PATTERN.items()}
    return [made.get(symbol) for symbol in pattern]


def nemotron_pattern(fields: Fields) -> str:
    """Return Nemotron-H's layer pattern: M Mamba, * attention, E mixture, - feed-forward."""
    names = fields.each_layer("layers_block_type")
    if names is not None:
        return "".join(_SYMBOLS.get(str(name), "?") for name in names)
    pattern = fields.values.get("hybrid_override_pattern")
    if not isinstance(pattern, str):
        raise UsageError("no hybrid_override_pattern or layers_block_type", where=fields.where)
    if len(pattern) < fields.layers or set(pattern) - set(_SYMBOLS.values()):
        expected = f"{fields.layers} characters of M, *, E and -"
        raise UsageError("unknown hybrid_override_pattern", fields.where, repr(pattern), expected)
    return pattern[: fields.layers]


_SYMBOLS = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}
