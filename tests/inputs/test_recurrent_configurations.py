"""Layers with a state, read from Hugging Face configurations: where they are, and what they keep."""

import json

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.hugging_face.configuration import model_of


def layers_of(model_type, **values):
    """Each layer of a configuration of 5 layers: its attention and feed-forward, both as read."""
    values = {"num_hidden_layers": 5, **SMALL, **values, "model_type": model_type}
    groups = model_of({key: value for key, value in values.items() if value is not None}, "m", "c").groups
    by_layer = {layer: group for group in groups for layer in group.layers}
    return [(by_layer[n].attention, by_layer[n].feed_forward) for n in range(len(by_layer))]


HIDDEN = 68


def fields(text):
    """Return the fields of a configuration that a text names."""
    return {name: json.loads(value) for name, value in (one.split("=") for one in text.split())}


SMALL = fields("""
    hidden_size=68 vocab_size=100 intermediate_size=40 num_attention_heads=2 head_dim=16 linear_num_key_heads=3
    linear_key_head_dim=5 linear_num_value_heads=6 linear_value_head_dim=7 linear_conv_kernel_dim=4 kv_lora_rank=8
    qk_rope_head_dim=4 qk_nope_head_dim=6 v_head_dim=6
""")
NEMOTRON = fields("""
    mamba_num_heads=3 mamba_head_dim=5 ssm_state_size=7 n_groups=2 conv_kernel=4 v_head_dim=null
    mlp_hidden_act="relu2" num_experts=8 num_experts_per_tok=2 moe_intermediate_size=24
""")
BAMBA = fields("""
    mamba_n_heads=3 mamba_d_head=5 mamba_d_state=7 mamba_n_groups=2 mamba_d_conv=4 shared_intermediate_size=24
""")
JAMBA = fields("""
    attn_layer_period=3 attn_layer_offset=5 expert_layer_period=2 expert_layer_offset=3 num_experts=8
    num_experts_per_tok=2 mamba_d_conv=4
""")
KIMI = {"num_heads": 3, "head_dim": 5, "short_conv_kernel_size": 4, "full_attn_layers": [2, 4]}
#: Bytes of the state and of the last inputs of a layer, and weights of its projections and convolution.
DELTA = (6 * 5 * 7 * 4 + (2 * 15 + 42) * 3 * 2, HIDDEN * (2 * 15 + 3 * 42 + 2 * 6) + 72 * 4)
MAMBA_2 = (3 * 5 * 7 * 4 + 43 * 3 * 2, HIDDEN * (15 + 43 + 3 + 15) + 43 * 4)


def mamba_1(rank):
    """136 channels with a state of 16 each; steps come through a matrix of the rank, twice."""
    return 136 * 16 * 4 + 136 * 3 * 2, HIDDEN * 3 * 136 + 136 * (2 * rank + 2 * 16) + 136 * 4


#: Architecture, its fields, its layers (S: state, A: attention, -: none), and the two numbers of a layer with a state.
RECURRENT = [
    ("qwen3_next", {"full_attention_interval": 3}, "SSASS", DELTA),
    (
        "qwen3_5",
        {"layer_types": [*["linear_attention"] * 3, *["full_attention"] * 3], "mamba_ssm_dtype": "bfloat16"},
        "SSSAA",
        (DELTA[0] - 6 * 5 * 7 * 2, DELTA[1]),
    ),
    (
        "kimi_linear",
        {"linear_attn_config": KIMI},
        "SASAS",
        (3 * 5 * 5 * 4 + 45 * 3 * 2, HIDDEN * (3 * 15 + 2 * 5 + 3 + 15) + 45 * 4),
    ),
    ("nemotron_h", {**NEMOTRON, "hybrid_override_pattern": "M*E-MM"}, "SA--S", MAMBA_2),
    (
        "nemotron_h",
        {
            **NEMOTRON,
            "layers_block_type": ["moe", "mamba", "mlp", "attention"],
            "num_hidden_layers": None,
            "mamba_ssm_cache_dtype": "float16",
        },
        "-S-A",
        (MAMBA_2[0] - 3 * 5 * 7 * 2, MAMBA_2[1]),
    ),
    ("bamba", {**BAMBA, "attn_layer_indices": [0, 3]}, "ASSAS", MAMBA_2),
    ("granitemoehybrid", {**BAMBA, "layer_types": ["mamba", "attention"] * 3}, "SASAS", MAMBA_2),
    ("jamba", JAMBA, "SSASS", mamba_1(5)),
    ("jamba", {**JAMBA, "mamba_dt_rank": 3}, "SSASS", mamba_1(3)),
    ("minimax_m1", {"attn_type_list": [0, 1, 0, 0, 1]}, "SASSA", (2 * 16 * 16 * 4, HIDDEN * 5 * 32)),
]


@pytest.mark.parametrize(("name", "values", "kinds", "numbers"), RECURRENT)
def test_layers_with_a_state_are_where_the_configuration_has_them(name, values, kinds, numbers):
    layers = layers_of(name, **values)
    found = "".join("-" if one is None else "S" if one.kind == "linear" else "A" for one, _ in layers)
    assert found == kinds
    assert {
        (sum(cache.entry_bytes for cache in one.caches("bf16", 1)), one.params(HIDDEN))
        for one, _ in layers
        if one is not None and one.kind == "linear"
    } == {numbers}


@pytest.mark.parametrize(
    ("name", "values", "line"),
    [
        ("qwen3_next", {}, "no full_attention_interval"),
        ("qwen3_next", {"layer_types": ["full_attention"] * 4}, "too few layer_types; got 4; expected 5"),
        ("qwen3_next", {"mamba_ssm_dtype": "int8"}, "unknown dtype of the state"),
        ("kimi_linear", {"linear_attn_config": {**KIMI, "full_attn_layers": None}}, "no full_attn_layers"),
        ("nemotron_h", NEMOTRON, "no hybrid_override_pattern or layers_block_type"),
        ("nemotron_h", {**NEMOTRON, "hybrid_override_pattern": "M*M*"}, "expected 5 characters"),
        ("nemotron_h", {**NEMOTRON, "hybrid_override_pattern": "M*M*x"}, "expected 5 characters"),
        ("bamba", BAMBA, "no attn_layer_indices"),
        ("granitemoehybrid", BAMBA, "no layer_types"),
        ("minimax_m1", {}, "no attn_type_list"),
    ],
)
def test_a_configuration_without_its_layers_is_one_line(name, values, line):
    with pytest.raises(UsageError, match=line):
        layers_of(name, **values)
