"""Numbers of tokens are refused or left out if no layout says what a block holds, and blocks still run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kvcache_sim import cachesim
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.model_file import load_model
from kvcache_sim.report.model_sheet import Asked, model_sheet, sheet_text
from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.subject import subject_line
from support.small_traces import trace_of

STEP_TIME = "replica: {step_time: 'roofline:deepseek-v4-flash@h200:tp2'}"
#: A window next to index keys: no engine's layout of them is known.
UNKNOWN = """
hidden_size = 64
vocab_size = 100
[[group]]
layers = "0"
attention = { kind = "sliding", heads = 4, kv_heads = 2, head_size = 16, window_tokens = 32 }
[[group]]
layers = "1"
attention = { kind = "full", heads = 4, kv_heads = 2, head_size = 16, index_key_size = 8, top_k_tokens = 4 }
"""


def load(text, *more):
    return scenario_from_text("\n".join([text, STEP_TIME, *more]), "s.yaml", Path.cwd(), ())


@pytest.mark.parametrize("capacity", ["auto", "100GiB"])
def test_bytes_of_latents_in_a_tree_are_refused_and_in_vllms_groups_are_not(capacity):
    tiers = f"tiers: {{gpu: {{capacity: {capacity}}}}}"
    with pytest.raises(UsageError, match="how many tokens of deepseek-v4-flash memory holds is not known"):
        load("model: deepseek-v4-flash", tiers)
    grouped = load("model: deepseek-v4-flash\ncache: {semantics: vllm}", tiers)
    if capacity == "100GiB":  # of both GPUs
        assert grouped.settings.machines[0].tiers[0].capacity_blocks == 100 * 2**30 // (2 * 1_002_240)
    assert "tokens" not in subject_line(grouped.resolved).partition("tiers")[2].partition("·")[0]
    if capacity == "100GiB":
        sized = load("model: deepseek-v4-flash\ncache: {kv_bytes_per_token: 10KiB}", tiers)
        assert " tokens" in subject_line(sized.resolved).partition("tiers")[2].partition("·")[0]


def test_a_tree_has_no_groups_of_latents_and_takes_blocks():
    blocks = "tiers: {gpu: {capacity: 100 blocks}, cpu: {capacity: 200 blocks}}"
    line = subject_line(load("model: deepseek-v4-flash", blocks).resolved)
    assert "tiers gpu 100 blocks, cpu 200 blocks ·" in line
    with pytest.raises(UsageError, match="memory holds is not known"):
        load("model: deepseek-v4-flash", blocks.replace("200 blocks", "1GiB"))
    with pytest.raises(UsageError, match="a tree's layout of deepseek-v4-flash is not known"):
        load("model: deepseek-v4-flash\ncache: {layer_groups: by-kind}", blocks)


def test_a_replay_takes_bytes_of_latents_under_vllm_alone():
    trace = trace_of([range(64), range(64)], block_size=16)
    with pytest.raises(UsageError, match="what a block weighs"):
        cachesim(trace, policy="lru", capacity="40GiB", model="deepseek-v4-flash")
    assert cachesim(trace, policy="lru", capacity=64, model="deepseek-v4-flash")["hit_tokens"] == 1_008
    replay = cachesim(trace, policy="vllm", capacity="40GiB", model="deepseek-v4-flash")
    assert replay["capacity_blocks"] == 40 * 2**30 // 1_002_240
    # hits are at whole blocks of 256 tokens, and the last token is computed
    assert replay["hit_tokens"] == 768


def test_a_sheet_leaves_out_tokens_of_an_unknown_layout(tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text(UNKNOWN)
    sheet = model_sheet(str(path), Asked(gpu="h100", lengths=(1_024,)))
    assert [sheet["kv_groups"], sheet["room"]["tokens"]] == [None, None]
    assert "tokens are not known" in sheet_text(sheet)
    with pytest.raises(UsageError, match="cannot be grouped"):
        cachesim(trace_of([range(4)]), policy="vllm", capacity=64, model=str(path))


def test_a_sheet_says_what_a_sequence_takes_in_blocks():
    """Qwen3-Next: 12 layers of attention in blocks of 544 tokens, and two states of each of three groups."""
    asked = Asked(lengths=(1_024, 131_072))
    sheet = model_sheet("qwen3-next-80b-a3b", asked)
    sizes = {length: (blocks + 3 * 2) * 13_369_344 for length, blocks in (("1024", 2), ("131072", 241))}
    assert sheet["kv_groups"]["sequence_bytes"] == sizes
    assert "two of each group of states" in sheet_text(sheet)
    flash = model_sheet("deepseek-v4-flash", replace(asked, gpu="h200", tensor_parallel=2))
    # latents, 3 blocks of each group of windows, 3 of sums of 8 tokens and 17 of sums of 128
    assert flash["kv_groups"]["sequence_bytes"]["131072"] == (512 + 2 * 3 + 3 + 17) * 1_002_240
    assert "1,002,240 bytes in fp8_ds_mla" in sheet_text(flash)
    assert flash["room"]["request_tokens"] == 1_048_576
    full = model_sheet("llama-3-8b", Asked(gpu="h100", lengths=(1_024,)))["room"]
    assert [full["tokens"], full["request_tokens"]] == [full["kv_bytes"] // 131_072, None]


def test_a_line_of_vllm_serves_latents_in_groups():
    line = "vllm serve deepseek-ai/DeepSeek-V4-Flash --tensor-parallel-size 2"
    made = scenario_from_text(scenario_of_launch(line, "h200"), "s.yaml", Path.cwd(), ())
    assert made.settings.cache.groups.layout.bytes_per_block == 1_002_240
    sglang = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V4-Flash --tp 2"
    with pytest.raises(UsageError, match="memory holds is not known"):
        scenario_of_launch(sglang, "h200")


@pytest.mark.parametrize("key", ["modules_to_not_convert", "ignored_layers", "ignore"])
def test_layers_that_a_checkpoint_leaves_alone_keep_their_format(tmp_path, key):
    """Llama-3.1-405B in FP8 with its attention in bf16, 16 KV heads: 57.1 GiB on each of eight GPUs, and not 48.2."""
    shapes = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 16_384,
        "intermediate_size": 53_248,
        "num_hidden_layers": 126,
        "num_attention_heads": 128,
        "num_key_value_heads": 16,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "torch_dtype": "bfloat16",
    }
    left = [f"model.layers.{layer}.self_attn.{part}_proj" for layer in range(126) for part in "qkvo"]
    for named, gib in (([], 48.23), (left, 57.09)):
        quantization = {"quant_method": "fbgemm_fp8", key: [*named, "lm_head"]}
        (tmp_path / "config.json").write_text(json.dumps({**shapes, "quantization_config": quantization}))
        assert load_model(str(tmp_path)).weights_bytes / 8 / 2**30 == pytest.approx(gib, abs=0.01)
