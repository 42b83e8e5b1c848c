"""Models from Hugging Face configurations: what a sequence keeps, by hand and by a library; and bad files."""

import importlib.util
import json
import tomllib
from dataclasses import astuple, replace
from pathlib import Path

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.hugging_face.configuration import model_of
from kvcache_sim.model.hugging_face.quantization import kv_dtype as format_of_kv
from kvcache_sim.model.hugging_face.quantization import weight_dtypes
from kvcache_sim.model.model_file import load_model
from kvcache_sim.scenario.launch.names import dtype_of_name
from kvcache_sim.scenario.launch.weights import dtype_of_most
from support.product.models import model_text, new_model, parse_model
from support.shared_files import DATA, ROOT

FOLDER = DATA / "model_configurations"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
MIB = 2**20


def model(name: str, kv_dtype: str = "bf16"):
    return replace(load_model(str(FOLDER / f"{name}.json")), kv_dtype=kv_dtype)


def test_the_table_of_the_site_has_these_figures():
    rows = tomllib.loads((ROOT / "docs" / "data" / "kv-per-sequence.toml").read_text())["rows"]
    assert sorted(name for name, *_ in rows) == NAMES
    for name, kv_dtype, degrees, per_token, fixed_mib, _ in rows:
        spec = model(name, kv_dtype)
        for tp in (1, 8) if degrees == "any" else map(int, degrees.split(", ")):
            assert f"{spec.kv_bytes_per_token_per_gpu(tp):,}" == per_token, (name, tp)
            fixed = spec.kv_bytes_fixed_per_gpu(tp) / MIB
            assert fixed == pytest.approx(float(fixed_mib.replace(",", "")), abs=0.05), name


def plain(layers, kv_heads, size, length):
    return layers * 2 * kv_heads * size * 2 * length


#: One sequence of L tokens on one GPU at TP 1 and a bf16 KV cache, layer by layer as the papers have them.
BY_HAND = {
    "gpt-oss-120b": lambda n: plain(18, 8, 64, n) + plain(18, 8, 64, min(n, 128)),
    "deepseek-v3": lambda n: 61 * (512 + 64) * 2 * n,
    "deepseek-v3.2": lambda n: 61 * ((512 + 64) * 2 + 128 + 4) * n,
    "deepseek-v4-flash": lambda n: (
        43 * 512 * 2 * min(n, 128)
        + 21 * (n // 4 * (512 * 2 + 64) + 2 * 4 * 2 * (512 + 128) * 4)
        + 20 * (n // 128 * 512 * 2 + 2 * 128 * 512 * 4)
    ),
    "qwen3-235b-a22b": lambda n: plain(94, 4, 128, n),
    "qwen3.5-35b-a3b": lambda n: (
        plain(10, 2, 256, n) + 30 * (32 * 128 * 128 * 4 + (2 * 16 + 32) * 128 * 3 * 2)
    ),
    "gemma-4-26b": lambda n: plain(5, 2, 512, n) + plain(25, 8, 256, min(n, 1024)),
    "llama-4-scout": lambda n: plain(12, 8, 128, n) + plain(36, 8, 128, min(n, 8192)),
    "mixtral-8x7b": lambda n: plain(32, 8, 128, n),
    "kimi-k2": lambda n: 61 * 576 * 2 * n,
    "glm-5": lambda n: 78 * (576 * 2 + 132) * n,
    "minimax-m2.5": lambda n: plain(62, 8, 128, n),
}


#: The same of packaged models of autumn 2026; GLM-5.2 has an indexer in layers 0 to 2 and every fourth from 6 on.
AUTUMN = {
    "glm-5.2": lambda n: (78 * 576 * 2 + 21 * 132) * n,
    "glm-5.3": lambda n: (78 * 576 * 2 + 21 * 132) * n,
    "minimax-m3": lambda n: plain(60, 4, 128, n) + 57 * 128 * 2 * n,
    "kimi-k3": lambda n: 24 * 576 * 2 * n + 69 * (96 * 128 * 128 * 4 + 3 * 96 * 128 * 3 * 2),
    "deepseek-v4-pro": lambda n: (
        61 * 512 * 2 * min(n, 128)
        + 30 * (n // 4 * (512 * 2 + 64) + 2 * 4 * 2 * (512 + 128) * 4)
        + 31 * (n // 128 * 512 * 2 + 2 * 128 * 512 * 4)
    ),
}


@pytest.mark.parametrize("name", AUTUMN)
@pytest.mark.parametrize("length", [1024, 8192, 131_072])
def test_a_sequence_of_a_packaged_model(name, length):
    assert load_model(name).kv_bytes_per_gpu(length, 1) == AUTUMN[name](length)


def test_a_shared_selection_has_no_weights_and_scans_no_keys():
    """57 of GLM-5.2's layers attend to what an earlier layer's indexer selects: its weights are GLM-5's less theirs."""
    shared, own = load_model("glm-5.2"), load_model("glm-5")
    each = 2048 * 32 * 128 + 6144 * (128 + 32)
    assert own.params_total - shared.params_total == 57 * each
    by_layer = {layer: group.attention for group in shared.groups for layer in group.layers}
    assert [n for n, one in by_layer.items() if one.scan_flops_per_pair] == sorted([0, 1, *range(2, 78, 4)])
    assert {one.chosen_entries for one in by_layer.values()} == {2048}


UNKNOWN = json.loads("""
    {"architectures": ["ZephyrusForCausalLM"], "hidden_size": 512, "num_hidden_layers": 4, "vocab_size":
    1000, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 1024,
    "first_k_dense_replace": 1, "n_routed_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size":
    256, "torch_dtype": "bfloat16", "max_position_embeddings": 4096}
""")


@pytest.mark.parametrize(
    "more", [{}, {"kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32}]
)
def test_an_unknown_class_gives_a_draft_with_every_value_marked(tmp_path, more):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**UNKNOWN, **more}))
    with pytest.raises(UsageError, match="draft"):
        load_model(str(path))
    text = new_model(str(path))
    assert "ZephyrusForCausalLM is not known" in text
    values = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    assert len(values) > 10
    assert all(line.endswith("# check") for line in values)
    made = tmp_path / "made.toml"
    made.write_text(text)
    known = {**UNKNOWN, **more, "architectures": ["DeepseekV3ForCausalLM" if more else "Qwen3MoeForCausalLM"]}
    expected = model_of(known, "made", str(path))
    assert load_model(str(made)).groups == expected.groups
    path.write_text(json.dumps({key: value for key, value in UNKNOWN.items() if key != "hidden_size"}))
    with pytest.raises(UsageError, match="hidden_size"):
        new_model(str(path))
    lacks = {key: value for key, value in known.items() if key != "hidden_size"}
    nested = {"architectures": known["architectures"], "text_config": lacks}
    for own, where in ((lacks, "here"), (nested, "here text_config")):
        with pytest.raises(UsageError) as refused:
            model_of(own, "made", "here")
        assert str(refused.value).startswith(f"{where}: ")


@pytest.mark.parametrize("start", ["llama-3-8b", str(FOLDER / "kimi-k2.json")])
def test_a_file_started_from_a_known_model_is_no_draft(tmp_path, start):
    text = new_model(start)
    assert not any(line.endswith("# check") for line in text.splitlines())
    made = tmp_path / "made.toml"
    made.write_text(text)
    assert load_model(str(made)).groups == load_model(start).groups


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [1024, 8192, 131_072])
def test_a_sequence_keeps_what_its_layers_add_up_to(name, length):
    assert model(name).kv_bytes_per_gpu(length, 1) == BY_HAND[name](length)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("gpt-oss-120b", 116.8, 5.7),
        ("deepseek-v3", 671, 37.6),
        ("deepseek-v4-flash", 284, 13.8),
        ("qwen3-235b-a22b", 235, 22.2),
        ("qwen3.5-35b-a3b", 34.7, 3.45),
        ("gemma-4-26b", 25.2, 3.8),
        ("llama-4-scout", 107.8, 17.2),
        ("kimi-k2", 1026, 32.9),
        ("glm-5", 744, 41.8),
        ("minimax-m2.5", 228.7, 11),
    ],
)
def test_parameters_are_those_the_makers_state(name, total, active):
    spec = model(name)
    assert spec.params_total / 1e9 == pytest.approx(total, rel=0.01)
    assert spec.params_active / 1e9 == pytest.approx(active, rel=0.02)


def test_heads_are_split_and_latents_and_index_keys_repeated():
    qwen, latent = model("qwen3-235b-a22b"), model("deepseek-v3.2")
    assert qwen.kv_bytes_per_token_per_gpu(4) == qwen.kv_bytes_per_token_per_gpu(8)
    assert latent.kv_bytes_per_token_per_gpu(8) == latent.kv_bytes_per_token
    hybrid = model("qwen3.5-35b-a3b")
    assert hybrid.kv_bytes_fixed_per_gpu(2) * 2 == hybrid.kv_bytes_fixed_per_gpu(1)


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_written_as_toml_reads_back(name, tmp_path):
    spec = model(name)
    path = tmp_path / "mine.toml"
    path.write_text(model_text(spec))
    assert replace(load_model(str(path)), name=spec.name) == spec


def refusal_of(path):
    """The line that refuses a file, empty where it reads."""
    try:
        load_model(str(path))
    except UsageError as refusal:
        return str(refusal)
    return ""


def test_every_field_that_is_left_out_is_named_or_has_a_default(tmp_path):
    """Without one field, a configuration reads as something or is refused in one line that names a field."""
    named = 0
    for name in NAMES:
        values = json.loads((FOLDER / f"{name}.json").read_text())
        text = values.get("text_config", values)
        for key in list(text):
            kept = text.pop(key)
            path = tmp_path / "c.json"
            path.write_text(json.dumps(values))
            line = refusal_of(path)
            assert not line or key in line, (name, key, line)
            named += bool(line)
            text[key] = kept
    assert named > 60


def test_a_model_of_ones_own_needs_its_layers_once():
    own = {"hidden_size": 64, "vocab_size": 100, "group": []}
    group = {"layers": "0-3", "attention": {"kind": "full", "heads": 4, "kv_heads": 2, "head_size": 16}}
    good = parse_model({**own, "group": [group]}, "mine", "mine.toml")
    assert good.kv_bytes_per_token == 4 * 2 * 2 * 16 * 2
    for table, line in (
        ({**own, "group": [group, group]}, "left out or given twice"),
        ({**own, "group": [{**group, "layers": "1-3"}]}, "left out or given twice"),
        ({**own, "group": [{**group, "layers": "0-x"}]}, "not layer numbers"),
        ({**own, "group": [{**group, "attention": {"kind": "ful"}}]}, "did you mean full"),
        ({**own, "group": [{**group, "attention": {"kind": "full", "heads": 4}}]}, "no kv_heads"),
        ({**own, "kv_dtype": "fp7", "group": [group]}, "did you mean fp"),
        ({**own, "grup": []}, "did you mean group"),
        ({"vocab_size": 1, "group": [group]}, "no hidden_size"),
    ):
        with pytest.raises(UsageError, match=line):
            parse_model(table, "mine", "mine.toml")


def test_every_configuration_of_the_hardware_wheel_reads_or_names_what_is_missing(capsys):
    """All that the wheel ``aiconfigurator-core`` has; skipped without it."""
    found = importlib.util.find_spec("aiconfigurator_core")
    if found is None or found.origin is None:
        pytest.skip("aiconfigurator-core is not installed")
    read, refused, named = [], {}, 0
    for path in sorted((Path(found.origin).parent / "model_configs").glob("*.json")):
        line = refusal_of(path)
        if line:
            refused[path.name] = line.removeprefix(f"{path}: ")
        else:
            spec = load_model(str(path))
            read.append(spec.kv_bytes_per_token)
            stated = dtype_of_name(path.name.removesuffix("_config.json").replace("--", "/"))
            assert stated in ("", dtype_of_most(spec)), path.name
            named += stated != ""
    with capsys.disabled():
        print(f"\n{len(read)} configurations read, {len(refused)} refused: {sorted(set(refused.values()))}")
    # Refused folders have formats of weights only; they count if they hold a configuration as well.
    assert set(refused.values()) <= {"no architectures and no model_type; is it a config.json?"}
    assert all(name.endswith("hf_quant_config.json") for name in refused)
    assert min(read) > 1000
    assert named > 30


def compressed(*groups, **more):
    """A config of compressed-tensors: (targets, bits, type, group size) of each group."""
    made = {
        str(n): {"targets": targets, "weights": {"num_bits": bits, "type": kind, "group_size": size}}
        for n, (targets, bits, kind, size) in enumerate(groups)
    }
    return {"quant_method": "compressed-tensors", "config_groups": made, **more}


LINEAR, ATTN = ["Linear"], ["re:.*attn.*"]
EACH = [f"model.layers.{n}.self_attn.q_proj" for n in range(11)]


@pytest.mark.parametrize(
    ("quantization", "formats"),
    [
        ({}, "fp16 fp16 fp16"),
        ({"quant_method": "mxfp4"}, "fp16 fp16 mxfp4"),
        ({"quant_method": "fp8"}, "fp8 fp8 fp8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8 fp8 fp8"),
        ({"quant_method": "modelopt", "quant_algo": "nvfp4"}, "nvfp4 nvfp4 nvfp4"),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "moe_quant_algo": "W4A16_NVFP4"},
            "nvfp4 nvfp4 nvfp4",
        ),
        ({"quant_method": "awq", "bits": 4}, "int4-g128 int4-g128 int4-g128"),
        ({"quant_method": "gptq", "bits": 8}, "int8 int8 int8"),
        (compressed((LINEAR, 8, "float", None)), "fp8 fp8 fp8"),
        (compressed((LINEAR, 8, "int", None)), "int8 int8 int8"),
        (compressed((LINEAR, 4, "float", 16)), "nvfp4 nvfp4 nvfp4"),
        (compressed((LINEAR, 4, "float", 32)), "mxfp4 mxfp4 mxfp4"),
        (compressed((LINEAR, 4, "int", 32)), "int4-g32 int4-g32 int4-g32"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"0": {"targets": LINEAR}}},
            "bf16 bf16 bf16",
        ),
        (compressed((LINEAR, 4, "int", 128)), "int4-g128 int4-g128 int4-g128"),
        (compressed((LINEAR, 4, "int", 32), (ATTN, 8, "float", None)), "fp8 int4-g32 int4-g32"),
        (compressed((ATTN, 4, "int", 32), (LINEAR, 8, "float", None)), "int4-g32 int4-g32 int4-g32"),
        (compressed((LINEAR, 8, "float", None), ignore=["re:.*self_attn.*"]), "fp16 fp8 fp8"),
        ({"quant_method": "fp8", "modules_to_not_convert": EACH}, "fp16 fp8 fp8"),
        ({"quant_method": "fp8", "modules_to_not_convert": EACH[:10]}, "fp8 fp8 fp8"),
        ({"quant_method": "fp8", "exclude_modules": ["*shared_experts*"]}, "fp8 fp16 fp8"),
        (
            {
                "quant_method": "mixed",
                "quantized_layers": {"attn": {"quant_algo": "FP8"}, "mlp": {"quant_algo": "NVFP4"}},
            },
            "fp8 nvfp4 nvfp4",
        ),
    ],
)
def test_formats_of_attention_dense_layers_and_experts(quantization, formats):
    found = weight_dtypes(quantization, "fp16", "config.json")
    assert astuple(found) == (*formats.split(), "fp16")


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({}, "bf16"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"kv_cache_scheme": {"num_bits": 4, "type": "int"}}, "bf16"),
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"kv_cache_scheme": "FP8"}, "fp8"),
    ],
)
def test_the_cache_has_a_format_of_its_own_where_one_is_stated(quantization, dtype):
    assert format_of_kv(quantization) == dtype
