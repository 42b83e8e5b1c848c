"""Each layer that a reader of a Hugging Face configuration returns, written out by hand."""

import json
from dataclasses import replace

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.attention import HeadAttention
from kvcache_sim.model.hugging_face import attention, feed_forward, searched
from kvcache_sim.model.hugging_face.configuration import model_of, read_configuration, unknown_architecture
from kvcache_sim.model.hugging_face.fields import Fields
from kvcache_sim.model.latent_attention import CompressedAttention, Indexer, LatentAttention
from kvcache_sim.model.layer_group import DenseFeedForward, MoeFeedForward
from kvcache_sim.model.model_file import load_model

OWN = {"num_hidden_layers": 5, "hidden_size": 96, "num_attention_heads": 6, "vocab_size": 50}
FULL = HeadAttention(6, 6, 16)
NEAR, CHUNK = replace(FULL, window_tokens=7), replace(FULL, chunk_tokens=9)
WINDOW = {"sliding_window": 7}
GLOBAL = {
    "head_dim": 10,
    "num_key_value_heads": 3,
    **WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
}
FEW = HeadAttention(6, 3, 10, window_tokens=7)
MIMO = {"hybrid_layer_pattern": [0, 1, 1, 0, 1], "head_dim": 10, "v_head_dim": 8, "num_key_value_heads": 3}
BLOCKS = {
    "sparse_index_dim": 11,
    "sparse_topk_blocks": 4,
    "sparse_block_size": 32,
    "sparse_attention_freq": [0, 1, 0, 1, 1, 1],
}
MLA = {"kv_lora_rank": 20, "qk_rope_head_dim": 3, "qk_nope_head_dim": 5, "v_head_dim": 4}
LATENT = LatentAttention(6, 20, 3, 5, 4)
INDEX = {"index_topk": 64, "index_n_heads": 2, "index_head_dim": 12}
OWN_INDEX = replace(LATENT, query_rank=13, indexer=Indexer(64, 2, 12))
SHARED = replace(OWN_INDEX, indexer=Indexer(64))
SQUEEZE = {
    "compress_ratios": [0, 4, 128, 4, 0, 4],
    "head_dim": 10,
    **WINDOW,
    "q_lora_rank": 13,
    "o_groups": 2,
    "o_lora_rank": 14,
    "qk_rope_head_dim": 3,
    **INDEX,
}
NO_RATIO = CompressedAttention(6, 10, 7, 13, 2, 14, 3)
SEARCHED = [
    {"n_heads_in_group": 2},
    {"no_op": True},
    {"n_heads_in_group": 3, "window_length": 7},
    {"replace_with_linear": True},
    {"n_heads_in_group": 6},
]

ATTENTION = [
    ("plain", {}, [FULL] * 5),
    ("plain", {"num_key_value_heads": 2, "head_dim": 10, "attn_output_gate": True}, [HeadAttention(6, 2, 10, output_gate_size=60)] * 5),
    ("plain", {"num_attention_groups": 3, "use_head_wise_attn_gate": True}, [HeadAttention(6, 3, 16, output_gate_size=96)] * 5),
    ("plain", {"v_head_dim": 4}, [HeadAttention(6, 6, 16, 4)] * 5),
    ("plain", WINDOW, [NEAR] * 5),
    ("plain", {**WINDOW, "use_sliding_window": True}, [NEAR] * 5),
    ("plain", {**WINDOW, "use_sliding_window": False, "max_window_layers": 2}, [FULL] * 5),
    ("plain", {"max_window_layers": 2}, [FULL] * 5),
    ("plain", {**WINDOW, "max_window_layers": 2}, [FULL] * 2 + [NEAR] * 3),
    ("plain", {**WINDOW, "attention_chunk_size": 9, "layer_types": ["full_attention", "sliding_attention", "chunked_attention"] * 2}, [FULL, NEAR, CHUNK, FULL, NEAR]),
    ("unwindowed", WINDOW, [FULL] * 5),
    ("alternating", {**WINDOW, "sliding_window_pattern": 2}, [NEAR, FULL, NEAR, FULL, NEAR]),
    ("alternating", {**WINDOW, "_sliding_window_pattern": 3}, [NEAR, NEAR, FULL, NEAR, NEAR]),
    ("alternating", {**WINDOW, "sliding_window_pattern": 2, "layer_types": ["full_attention"] * 4 + ["sliding_attention"]}, [FULL] * 4 + [NEAR]),
    ("llama4", {"attention_chunk_size": 9}, [CHUNK] * 3 + [FULL, CHUNK]),
    ("llama4", {"attention_chunk_size": 9, "no_rope_layers": []}, [CHUNK] * 3 + [FULL, CHUNK]),
    ("llama4", {"attention_chunk_size": 9, "no_rope_layer_interval": 2}, [CHUNK, FULL] * 2 + [CHUNK]),
    ("llama4", {"attention_chunk_size": 9, "no_rope_layers": [0, 1, 1, 0, 1]}, [FULL, CHUNK, CHUNK, FULL, CHUNK]),
    ("gemma4", {**GLOBAL, "num_kv_shared_layers": 0}, [FEW, HeadAttention(6, 3, 10)] * 2 + [FEW]),
    ("gemma4", {**GLOBAL, "global_head_dim": 12, "num_global_key_value_heads": 2}, [FEW, HeadAttention(6, 2, 12)] * 2 + [FEW]),
    ("gemma4", {**GLOBAL, "num_kv_shared_layers": 1}, UsageError),
    ("gemma4", {**GLOBAL, "layer_types": None}, UsageError),
    ("mimo_v2", {**MIMO, **WINDOW}, [HeadAttention(6, 3, 10, 8, 7 * sliding) for sliding in MIMO["hybrid_layer_pattern"]]),
    ("mimo_v2", {**MIMO, "sliding_window_size": 7, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 12, "swa_v_head_dim": 9},
     [HeadAttention(4, 2, 12, 9, 7) if sliding else HeadAttention(6, 3, 10, 8) for sliding in MIMO["hybrid_layer_pattern"]]),
    ("minimax_m3", {"sparse_attention_config": BLOCKS}, [replace(FULL, index_key_size=11 * sparse, top_k_tokens=128 * sparse) for sparse in (0, 1, 0, 1, 1)]),
    ("minimax_m3", {"sparse_attention_config": {**BLOCKS, "sparse_attention_freq": None}}, UsageError),
    ("usual", {"num_key_value_heads": 3}, [HeadAttention(6, 3, 16)] * 5),
    ("usual", MLA, [LATENT] * 5),
    ("latent", {**MLA, "indexer_types": ["full"] * 5}, [LATENT] * 5),
    ("latent", {**MLA, **INDEX, "q_lora_rank": 13}, [OWN_INDEX] * 5),
    ("latent", {**MLA, **INDEX, "q_lora_rank": 13, "indexer_types": ["full", "shared"] * 3}, [OWN_INDEX, SHARED] * 2 + [OWN_INDEX]),
    ("compressed", SQUEEZE, [replace(NO_RATIO, ratio=ratio, indexer=Indexer(64, 2, 12) if ratio == 4 else None) for ratio in (0, 4, 128, 4, 0)]),
    ("searched", {"block_configs": [{"attention": own} for own in SEARCHED]}, [HeadAttention(6, 3, 16), None, HeadAttention(6, 2, 16, window_tokens=7), None, HeadAttention(6, 1, 16)]),
    ("searched", {"block_configs": [*[{"attention": own} for own in SEARCHED[1:]], {"ffn": {}}]}, UsageError),
    ("searched", {}, UsageError),
]  # fmt: skip


WIDE = {"intermediate_size": 40}
DENSE, MIXED = DenseFeedForward(40), MoeFeedForward(8, 2, 24)
MOE = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, **WIDE}
MAVERICK = {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size_mlp": 50, **WIDE}
PAIRED, MLP = MoeFeedForward(8, 2, 40, 40), DenseFeedForward(50)

FEED_FORWARD = [
    ("dense", WIDE, [DENSE] * 5),
    ("ungated", WIDE, [DenseFeedForward(40, 2)] * 5),
    ("ungated", {"ffn_dim": 41}, [DenseFeedForward(41, 2)] * 5),
    ("ungated", {}, [DenseFeedForward(4 * 96, 2)] * 5),
    ("moe", WIDE, [DENSE] * 5),
    ("moe", MOE, [MIXED] * 5),
    ("moe", {**MOE, "n_shared_experts": 3}, [replace(MIXED, shared_intermediate_size=72)] * 5),
    ("moe", {**MOE, "n_shared_experts": 3, "shared_expert_intermediate_size": 5}, [replace(MIXED, shared_intermediate_size=5)] * 5),
    ("moe", {**MOE, "moe_latent_size": 6, "mlp_hidden_act": "relu2"}, [replace(MIXED, latent_size=6, matrices=2)] * 5),
    ("moe", {**MOE, "first_k_dense_replace": 2}, [DENSE] * 2 + [MIXED] * 3),
    ("moe", {**MOE, "first_k_dense_replace": 1, "moe_layer_freq": 2}, [DENSE, DENSE, MIXED, DENSE, MIXED]),
    ("moe", {**MOE, "moe_layer_start_index": 1}, [DENSE] + [MIXED] * 4),
    ("moe", {**MOE, "moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 2}, [DENSE, MIXED, DENSE, MIXED, DENSE]),
    ("moe", {**MOE, "moe_layer_start_index": 1, "moe_layer_end_index": -1}, [DENSE] + [MIXED] * 4),
    ("moe", {**MOE, "dense_intermediate_size": 50, "mlp_only_layers": [0, 3]}, [MLP, MIXED, MIXED, MLP, MIXED]),
    ("moe", {**MOE, "decoder_sparse_step": 2, "intermediate_size_mlp": 50}, [MLP, MIXED] * 2 + [MLP]),
    ("moe", {**MOE, "decoder_sparse_step": 0}, [DENSE] * 5),
    ("moe", {**MOE, "moe_layer_freq": [0, 1, 1, 0]}, [DENSE, MIXED, MIXED, DENSE, DENSE]),
    ("llama4", MAVERICK, [PAIRED] * 5),
    ("llama4", {**MAVERICK, "interleave_moe_layer_step": 2}, [MLP, PAIRED] * 2 + [MLP]),
    ("llama4", {**MAVERICK, "moe_layers": [1, 2]}, [MLP, PAIRED, PAIRED, MLP, MLP]),
    ("gemma4", MOE, [DENSE] * 5),
    ("gemma4", {**MOE, "enable_moe_block": True}, [replace(MIXED, dense_intermediate_size=40)] * 5),
    ("granite4", {**MOE, "shared_intermediate_size": 9}, [DenseFeedForward(9)] * 5),
    ("granite4", {**MAVERICK, "shared_intermediate_size": 9}, [MoeFeedForward(8, 2, 40, 9)] * 5),
    ("nemotron_h", {**MOE, "hybrid_override_pattern": "M*E-M", "mlp_hidden_act": "relu2"}, [None, None, replace(MIXED, matrices=2), DenseFeedForward(40, 2), None]),
    ("nemotron_h", {**WIDE, "hybrid_override_pattern": "M*--M-"}, [None, None, DenseFeedForward(40, 2), DenseFeedForward(40, 2), None]),
    ("jamba", {**MOE, "expert_layer_period": 2, "expert_layer_offset": 3}, [DENSE, MoeFeedForward(8, 2, 40)] * 2 + [DENSE]),
    # 2/3 of a multiple of the width, up to the next multiple of 256
    ("searched", {"block_configs": [{"ffn": own} for own in ({"ffn_mult": 4}, {"no_op": True}, {"ffn_mult": 4.1}, {"replace_with_linear": True}, {"ffn_mult": 1})]},
     [DenseFeedForward(256), None, DenseFeedForward(512), None, DenseFeedForward(256)]),
    ("searched", {"block_configs": [{"ffn": {}}] * 5}, UsageError),
]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "reader", "values", "expected"),
    [("attention", *row) for row in ATTENTION] + [("feed_forward", *row) for row in FEED_FORWARD],
)
def test_the_parts_of_each_layer(part, reader, values, expected):
    module = {"attention": attention, "feed_forward": feed_forward}[part]
    read = getattr(searched, part) if reader == "searched" else getattr(module, reader)
    fields = Fields({**OWN, **values}, "c")
    if expected is UsageError:
        with pytest.raises(UsageError):
            read(fields)
    else:
        assert list(read(fields)) == expected


def test_a_configuration_and_the_files_next_to_it(tmp_path):
    """Names, formats, sampling, and the language model of a model of several kinds of input."""
    values = {**OWN, **MOE, "tie_word_embeddings": None, "torch_dtype": None, "model_type": "qwen3_moe"}
    path = tmp_path / "config.json"

    def read(generation=None, quantization=None, **more):
        for name, table in (("generation_", generation), ("hf_quant_", quantization)):
            (tmp_path / f"{name}config.json").unlink(missing_ok=True)
            if table is not None:
                (tmp_path / f"{name}config.json").write_text(json.dumps(table))
        path.write_text(json.dumps({**values, **more}))
        return read_configuration(path)

    plain = read()
    assert [plain.name, plain.sampling, plain.tied_embeddings] == [tmp_path.name, "", False]
    assert [plain.source, read(_name_or_path="a/b").source] == [
        f"config.json of {tmp_path.name}", "config.json of a/b"
    ]  # fmt: skip
    for top_k, top_p, filters in (
        (20, 0.9, "top-k top-p"),
        (0, 1, ""),
        (1, 0, "top-k"),
        (None, 0.5, "top-p"),
        (2.5, "x", ""),
    ):
        assert read({"top_k": top_k, "top_p": top_p}).sampling == filters
    assert read(tie_word_embeddings=True).tied_embeddings
    stated = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    assert [read(None, stated).weights.experts, read(None, stated).kv_dtype] == ["nvfp4", "fp8"]
    mixed = read(None, stated, quantization_config={"quant_algo": "MXFP8", "kv_cache_quant_algo": None})
    assert [mixed.weights.experts, mixed.kv_dtype, load_model(str(tmp_path)).kv_dtype] == [
        "mxfp8",
        "fp8",
        "fp8",
    ]
    assert [read(quantization_config={"quant_method": "fp8"}).kv_dtype, read().kv_dtype] == ["bf16", "bf16"]
    four = read(expert_dtype="fp4", quantization_config={"quant_method": "fp8"}).weights
    assert [four.attention, four.feed_forward, four.experts, four.embedding] == [
        "fp8",
        "fp8",
        "mxfp4",
        "bf16",
    ]
    assert read(expert_dtype="fp4").weights.experts == "bf16"
    other = tmp_path / "mine.json"
    other.write_text(path.read_text())
    (tmp_path / "generation_config.json").write_text('{"top_k": 3}')
    assert [read_configuration(other).name, read_configuration(other).sampling] == ["mine", ""]

    outer = {
        "model_type": "outer_vl",
        "text_config": values,
        "torch_dtype": "float16",
        "tie_word_embeddings": True,
    }
    nested = model_of(outer, "m", "c")
    assert [nested.groups, nested.tied_embeddings, nested.weights.attention] == [plain.groups, True, "fp16"]
    assert model_of({**values, "model_type": "unheard_of"}, "m", "c", draft=True).groups == plain.groups
    for names, unknown in (
        ({"model_type": "qwen3_moe"}, ""),
        ({"architectures": ["AForCausalLM", "B"]}, "AForCausalLM"),
        ({}, ""),
    ):
        other.write_text(json.dumps({"text_config": {**names}, "architectures": 3}))
        assert unknown_architecture(other) == unknown
    removed = [{"attention": {"no_op": True}, "ffn": {"no_op": True}}] * 5
    with pytest.raises(UsageError, match="no layer with attention"):
        model_of({**OWN, "model_type": "deci_lm", "block_configs": removed}, "m", "c")
