"""Each layer that a reader of a Hugging Face configuration returns, written out by hand."""

import json
import re
from collections import ChainMap

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.hugging_face import attention, feed_forward, searched
from kvcache_sim.model.hugging_face.configuration import model_of, read_configuration, unknown_architecture
from kvcache_sim.model.hugging_face.fields import Fields
from kvcache_sim.model.model_file import load_model

OWN = {"num_hidden_layers": 5, "hidden_size": 96, "num_attention_heads": 6, "vocab_size": 50}
MOE = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "intermediate_size": 40}
#: Fields that several configurations have.
_GROUPS = """
WINDOW {"sliding_window": 7}
GLOBAL {"head_dim": 10, "num_key_value_heads": 3, "sliding_window": 7, "layer_types": ["sliding_attention",
    "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"]}
MIMO {"hybrid_layer_pattern": [0, 1, 1, 0, 1], "head_dim": 10, "v_head_dim": 8, "num_key_value_heads": 3}
MLA {"kv_lora_rank": 20, "qk_rope_head_dim": 3, "qk_nope_head_dim": 5, "v_head_dim": 4}
INDEX {"index_topk": 64, "index_n_heads": 2, "index_head_dim": 12}
SQUEEZE {"compress_ratios": [0, 4, 128, 4, 0, 4], "head_dim": 10, "sliding_window": 7, "q_lora_rank": 13,
    "o_groups": 2, "o_lora_rank": 14, "qk_rope_head_dim": 3, "index_topk": 64, "index_n_heads": 2, "index_head_dim":
    12}
WIDE {"intermediate_size": 40}
MAVERICK {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size_mlp": 50, "intermediate_size": 40}
"""
GROUPS = {name: json.loads(own) for name, own in re.findall(r"^(\w+) ({[^}]*})", _GROUPS, re.M)} | {
    "MOE": MOE
}
#: Reader, groups of fields and further ones; a line that is further indented belongs to the one above it.
ATTENTION = """
    plain
    plain {"num_key_value_heads": 2, "head_dim": 10, "attn_output_gate": true}
    plain {"num_attention_groups": 3, "use_head_wise_attn_gate": true}
    plain {"v_head_dim": 4}
    plain WINDOW
    plain WINDOW {"use_sliding_window": true}
    plain WINDOW {"use_sliding_window": false, "max_window_layers": 2}
    plain {"max_window_layers": 2}
    plain WINDOW {"max_window_layers": 2}
    plain WINDOW {"attention_chunk_size": 9, "layer_types": ["full_attention", "sliding_attention",
        "chunked_attention", "full_attention", "sliding_attention", "chunked_attention"]}
    unwindowed WINDOW
    alternating WINDOW {"sliding_window_pattern": 2}
    alternating WINDOW {"_sliding_window_pattern": 3}
    alternating WINDOW {"sliding_window_pattern": 2, "layer_types": ["full_attention", "full_attention",
        "full_attention", "full_attention", "sliding_attention"]}
    llama4 {"attention_chunk_size": 9}
    llama4 {"attention_chunk_size": 9, "no_rope_layers": []}
    llama4 {"attention_chunk_size": 9, "no_rope_layer_interval": 2}
    llama4 {"attention_chunk_size": 9, "no_rope_layers": [0, 1, 1, 0, 1]}
    gemma4 GLOBAL {"num_kv_shared_layers": 0}
    gemma4 GLOBAL {"global_head_dim": 12, "num_global_key_value_heads": 2}
    gemma4 GLOBAL {"num_kv_shared_layers": 1}
    gemma4 GLOBAL {"layer_types": null}
    mimo_v2 MIMO WINDOW
    mimo_v2 MIMO {"sliding_window_size": 7, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2,
        "swa_head_dim": 12, "swa_v_head_dim": 9}
    minimax_m3 {"sparse_attention_config": {"sparse_index_dim": 11, "sparse_topk_blocks": 4,
        "sparse_block_size": 32, "sparse_attention_freq": [0, 1, 0, 1, 1, 1]}}
    minimax_m3 {"sparse_attention_config": {"sparse_index_dim": 11, "sparse_topk_blocks": 4,
        "sparse_block_size": 32, "sparse_attention_freq": null}}
    usual {"num_key_value_heads": 3}
    usual MLA
    latent MLA {"indexer_types": ["full", "full", "full", "full", "full"]}
    latent MLA INDEX {"q_lora_rank": 13}
    latent MLA INDEX {"q_lora_rank": 13, "indexer_types": ["full", "shared", "full", "shared", "full",
        "shared"]}
    compressed SQUEEZE
    searched {"block_configs": [{"attention": {"n_heads_in_group": 2}}, {"attention": {"no_op": true}},
        {"attention": {"n_heads_in_group": 3, "window_length": 7}},
        {"attention": {"replace_with_linear": true}}, {"attention": {"n_heads_in_group": 6}}]}
    searched {"block_configs": [{"attention": {"no_op": true}}, {"attention": {"n_heads_in_group": 3,
        "window_length": 7}}, {"attention": {"replace_with_linear": true}},
        {"attention": {"n_heads_in_group": 6}}, {"ffn": {}}]}
    searched
    """
FEED_FORWARD = """
    dense WIDE
    ungated WIDE
    ungated {"ffn_dim": 41}
    ungated
    moe WIDE
    moe MOE
    moe MOE {"n_shared_experts": 3}
    moe MOE {"n_shared_experts": 3, "shared_expert_intermediate_size": 5}
    moe MOE {"moe_latent_size": 6, "mlp_hidden_act": "relu2"}
    moe MOE {"first_k_dense_replace": 2}
    moe MOE {"first_k_dense_replace": 1, "moe_layer_freq": 2}
    moe MOE {"moe_layer_start_index": 1}
    moe MOE {"moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 2}
    moe MOE {"moe_layer_start_index": 1, "moe_layer_end_index": -1}
    moe MOE {"dense_intermediate_size": 50, "mlp_only_layers": [0, 3]}
    moe MOE {"decoder_sparse_step": 2, "intermediate_size_mlp": 50}
    moe MOE {"decoder_sparse_step": 0}
    moe MOE {"moe_layer_freq": [0, 1, 1, 0]}
    llama4 MAVERICK
    llama4 MAVERICK {"interleave_moe_layer_step": 2}
    llama4 MAVERICK {"moe_layers": [1, 2]}
    gemma4 MOE
    gemma4 MOE {"enable_moe_block": true}
    granite4 MOE {"shared_intermediate_size": 9}
    granite4 MAVERICK {"shared_intermediate_size": 9}
    nemotron_h MOE {"hybrid_override_pattern": "M*E-M", "mlp_hidden_act": "relu2"}
    nemotron_h WIDE {"hybrid_override_pattern": "M*--M-"}
    jamba MOE {"expert_layer_period": 2, "expert_layer_offset": 3}
    searched {"block_configs": [{"ffn": {"ffn_mult": 4}}, {"ffn": {"no_op": true}},
        {"ffn": {"ffn_mult": 4.1}}, {"ffn": {"replace_with_linear": true}}, {"ffn": {"ffn_mult": 1}}]}
    searched {"block_configs": [{"ffn": {}}, {"ffn": {}}, {"ffn": {}}, {"ffn": {}}, {"ffn": {}}]}
    """


@pytest.mark.parametrize(
    ("module", "lines"),
    [(attention, ATTENTION), (feed_forward, FEED_FORWARD)],
    ids=["attention", "feed_forward"],
)
def test_the_parts_of_each_layer(module, lines, snapshot):
    shown = []
    for line in lines.replace("\n        ", " ").strip().splitlines():
        words, _, more = line.strip().partition("{")
        reader, *groups = words.split()
        own = json.loads(f"{{{more}") if more else {}
        fields = Fields({**OWN, **ChainMap(*(GROUPS[name] for name in groups)), **own}, "c")
        part = module.__name__.rpartition(".")[2]
        read = getattr(searched, part) if reader == "searched" else getattr(module, reader)
        shown.append(line.strip())
        try:
            layers = [re.sub(r", \w+=(0|None)\b", "", str(layer)) for layer in read(fields)]
        except UsageError as refusal:
            shown.append(f"  {refusal}")
        else:
            shown += [
                f"  {[n for n, one in enumerate(layers) if one == own]} {own}"
                for own in dict.fromkeys(layers)
            ]
    assert "\n".join(shown) == snapshot


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
    assert plain.source == f"config.json of {tmp_path.name}"
    assert read(_name_or_path="a/b").source == "config.json of a/b"
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
    assert [four.attention, four.feed_forward, four.experts, four.embedding] == "fp8 fp8 mxfp4 bf16".split()
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
