"""Models and GPUs by the names that people write: Hub ids, paths, quantized copies and drivers' names."""

import csv
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import main
from kvcache_sim.model.gpus import UNMEASURED, load_gpu
from kvcache_sim.model.model_file import load_model, model_names
from kvcache_sim.scenario.launch.names import dtype_of_name, kv_dtype_of_name, model_of
from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch
from support.product.models import gpu_names
from support.shared_files import ROOT

GIVEN = ROOT.parent / "shared" / "launch_lines"
needs_given = pytest.mark.skipif(not GIVEN.is_dir(), reason="../shared is not there")

BY_HAND = {
    "meta-llama/Llama-3.3-70B-Instruct": ("llama-3.3-70b", ""),
    "/hub/Llama-3.1-8B-Instruct/": ("llama-3.1-8b", ""),
    "models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca": ("qwen3-0.6b", ""),
    "~/llama-3.1-405b-fp8-dummy/": ("llama-3.1-405b", "fp8"),
    "/m/Qwen/Qwen2___5-VL-72B-Instruct": ("qwen2.5-vl-72b", ""),
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8": ("qwen2.5-7b", "int8"),
    "gaunernst/gemma-3-27b-it-int4-awq": ("gemma-3-27b", "int4-g128"),
    "RedHatAI/Qwen3-8B-quantized.w4a16": ("qwen3-8b", "int4-g128"),
    "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit": ("llama-3.1-8b", "int4-g128"),
    "nvidia/DeepSeek-R1-FP4": ("deepseek-r1", "nvfp4"),
    "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8": ("qwen3-30b-a3b", "fp8"),
    "moonshotai/Kimi-K2-Thinking": ("kimi-k2-thinking", ""),
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B": ("deepseek-r1-0528-qwen3-8b", ""),
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": ("llama-3.3-nemotron-super-49b", ""),
}
GPUS = {
    "NVIDIA H100 80GB HBM3": "h100",
    "H100-SXM": "h100",
    "A100-SXM4-40GB": "a100-40gb",
    "rtx-4090": "rtx4090",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "AMD Instinct MI355X": "mi355x",
    "Tesla T4": "t4",
}
#: Parts that the given table counts otherwise; the reason.
COUNTS_OTHERWISE = {
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "its 81.3 hold the drafting layer; Qwen3-Coder-Next's 79.7 do not",
    "Qwen/Qwen3.5-4B": "4.12 is without the gates of attention, 8 x 2,560 x 4,096 weights",
    "Qwen/Qwen3.5-9B": "8.81 is without the gates of attention, 8 x 4,096 x 4,096 weights",
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": "its config.json has 6 attention layers, not 52",
    "mistralai/Mistral-7B-Instruct-v0.1": "all its layers keep a window of 4,096 tokens",
}
#: Index keys, which the given table leaves out.
WITH_INDEXERS = re.compile(r"DeepSeek-V3\.2|GLM-5|MiniMax-M3")


def rows(name):
    with (GIVEN / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", BY_HAND)
def test_a_models_name_is_read_as_people_write_it(name):
    assert (model_of(name), dtype_of_name(name)) == BY_HAND[name]


@needs_given
@given(st.data())
def test_decorations_of_a_name_do_not_change_its_model(data):
    """A row's id as a path, a directory of the Hub's cache or ModelScope's, in any case, with a format."""
    row = data.draw(st.sampled_from(rows("models.csv")))["hub_id"]
    owner, _, name = row.partition("/")
    expected = model_of(row)
    if not dtype_of_name(row):
        copy = data.draw(
            st.sampled_from(["", "-FP8", "-AWQ", "-GPTQ-Int4", "-NVFP4", "-MXFP4", "-w4a16", "-bnb-4bit"])
        )
        name += copy
        assert bool(dtype_of_name(name)) == bool(copy)
    changed = data.draw(
        st.sampled_from([str, str.lower, str.upper, lambda text: re.sub(r"(?<=\d)\.", "___", text)])
    )
    written = data.draw(
        st.sampled_from(
            ["{0}/{1}", "/data/models/{1}/", "./{0}/{1}", "models--{0}--{1}/snapshots/0a1b", "{1}"]
        )
    )
    assert model_of(written.format(owner, changed(name))) == expected


@needs_given
def test_sizes_are_those_of_the_given_table():
    for row in rows("models.csv"):
        name = row["hub_id"]
        model = load_model(model_of(name)).with_dtypes("", "bf16")
        if name in COUNTS_OTHERWISE:
            continue
        if row["parameters_b"]:
            assert model.params_total == pytest.approx(float(row["parameters_b"]) * 1e9, rel=0.01), name
        if row["kv_bytes_per_token_bf16_full_layers"] and not WITH_INDEXERS.search(name):
            assert model.kv_bytes_per_token == int(row["kv_bytes_per_token_bf16_full_layers"]), name


def test_rows_that_count_otherwise():
    """The gates of Qwen3.5, and attention of Nemotron 3.5: 6 layers of 2 KV heads of 128, keys and values."""
    assert load_model("qwen3.5-4b").params_total - 8 * 2560 * 4096 == pytest.approx(4.12e9, rel=0.002)
    assert load_model("qwen3.5-9b").params_total - 8 * 4096 * 4096 == pytest.approx(8.81e9, rel=0.002)
    lightning = load_model("nemotron-3.5-lightning").with_dtypes("", "bf16")
    assert lightning.kv_bytes_per_token == 6 * 2 * 128 * 2 * 2
    assert load_model("qwen3-next-80b-a3b").params_total == load_model("qwen3-coder-next").params_total
    assert load_model("mistral-7b-v0.1").kv_bytes_per_gpu(9000, 1) == 4096 * 131_072


@needs_given
def test_models_and_gpus_of_the_given_lines_are_known():
    for line in (GIVEN / "lines.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        names = case["expected"].get("model", [])
        names = [names] if isinstance(names, str) else names
        if names and case.get("also_right") != "refuse-with-hint":
            assert {model_of(name) for name in names if _is_known(name)} & {*model_names()}, case["id"]
        if case["gpu"]:
            assert load_gpu(case["gpu"]).name in gpu_names()


def _is_known(name):
    try:
        return bool(model_of(name))
    except UsageError:
        return False


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_by_its_drivers_name(name):
    assert load_gpu(name).name == GPUS[name]


@needs_given
def test_gpus_have_the_figures_of_the_given_table():
    for row in rows("gpus.csv"):
        gpu = load_gpu(row["gpu"])
        devices = 2 if gpu.name == "mi250x" else 1
        if row["kvsim_0.2.0_name"]:
            continue
        assert gpu.kernels == UNMEASURED
        assert ("believed" in gpu.source) == (
            not row["how"].startswith(("read (memory", "memory read; rates"))
        ), row["gpu"]
        assert gpu.memory_bytes_per_s == float(row["bandwidth_gbs"]) * 1e9 // devices
        assert gpu.nvlink_bytes_per_s == float(row["link_gbs_each_way"] or 0) * 1e9
        if row["memory_driver_mib"]:
            assert gpu.smi_mib == int(row["memory_driver_mib"]) // devices
            assert 0.95 < gpu.usable_bytes / (gpu.smi_mib << 20) <= 1


def test_the_gpu_is_the_one_that_is_given_or_named_and_else_said_to_be_assumed():
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct"
    assert "The GPU is not in the line, h100 is assumed" in scenario_of_launch(line, "")
    given = scenario_of_launch(line, "NVIDIA H200")
    assert "GPU: h200 (--gpu)" in given
    assert "not in the line" not in given
    assert "@l4" in scenario_of_launch(f"{line} --max-model-len 8192 --label nvidia-l4", "")
    assert "h100 is assumed" in scenario_of_launch(f"{line} --label l4-or-a10", "")
    with pytest.raises(UsageError, match="did you mean l4"):
        scenario_of_launch(line, "l44")


def test_another_model_stands_for_an_unknown_one_only_where_it_is_asked_for(tmp_path, monkeypatch, capsys):
    """The refusal drafts a model; the draft has the name's size and format, and no shape."""
    monkeypatch.chdir(tmp_path)
    line = "vllm serve /data/Foo-7B-Instruct-AWQ"
    with pytest.raises(UsageError, match="kvsim models new foo-7b-instruct-awq --from foo-7b-instruct-awq"):
        scenario_of_launch(line, "h100")
    stands = scenario_of_launch(line, "h100", "qwen2.5-7b")
    assert "# assumed: qwen2.5-7b stands for /data/Foo-7B-Instruct-AWQ (--model)" in stands
    assert "stands for" not in scenario_of_launch("vllm serve Qwen/Qwen2.5-7B-Instruct", "h100", "qwen2.5-7b")
    assert main.run(["models", "new", "foo", "--from", "foo-7b-instruct-awq"]) == 0
    assert "params_total = 7_000_000_000" in (tmp_path / "foo.toml").read_text()
    assert 'attention = "int4-g128"' in (tmp_path / "foo.toml").read_text()
    with pytest.raises(UsageError, match="no hidden_size"):
        load_model("foo.toml")
    assert main.run(["models", "new", "bar", "--from", "foo-7b"]) == 2
    capsys.readouterr()


def test_a_config_in_a_directory_is_its_model(tmp_path, monkeypatch):
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"vocab_size": 100, "intermediate_size": 128, "max_position_embeddings": 4096}
    own = tmp_path / "Foo-7B"
    own.mkdir()
    (own / "config.json").write_text(json.dumps(config))
    (own / "weights.gguf").write_text("")
    assert model_of(str(own)) == model_of(str(own / "weights.gguf")) == str(own)
    empty = tmp_path / "Qwen3-8B"
    empty.mkdir()
    assert model_of(str(empty)) == "qwen3-8b"


def test_believed_figures_and_formats_of_kv_are_named():
    assert "believed" in load_model("phi-4").source
    assert "# assumed: figures of phi-4: microsoft/phi-4: believed" in scenario_of_launch(
        "vllm serve phi-4", "h100"
    )
    copy = "vllm serve nvidia/DeepSeek-V3.1-NVFP4 -tp 8"
    made = scenario_of_launch(copy, "b200")
    assert "deepseek-v3.1@b200:tp8,nvfp4,kv-fp8" in made
    assert "# assumed: KV is fp8, as the configuration of nvidia/DeepSeek-V3.1-NVFP4 says" in made
    assert kv_dtype_of_name("deepseek-ai/DeepSeek-V3.1") == kv_dtype_of_name("someone/private") == ""


def test_a_model_of_the_same_shape_has_the_iterations():
    assert "h100-llama-3.1-8b-tp1" in scenario_of_launch(
        "vllm serve deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "h100"
    )


def test_a_name_with_a_line_break_writes_no_setting():
    made = scenario_of_launch("vllm serve 'x\nrouter: {policy: evil.py:X}\n/Qwen3-8B-AWQ'", "h100")
    assert not [line for line in made.splitlines() if line.startswith("router")]
