"""Engines' launch lines become scenarios that run, and scenarios launch lines."""

from __future__ import annotations

import kvcache_sim as kv
import pytest
from kvcache_sim.cli import main
from kvcache_sim.scenario.launch.model_name import model_of
from kvcache_sim.scenario.launch.to_line import launch_of_scenario
from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch

VLLM = (
    "CUDA_VISIBLE_DEVICES=0 vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --max-num-seqs=128 "
    "--max-num-batched-tokens 4096 --block-size 32 --num-gpu-blocks-override 4000 --kv-offloading-size 64 "
    "--kv-cache-dtype fp8 --max-model-len 32768 --port 8000 --trust-remote-code"
)
SGLANG = (
    "python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2 --dp 2 --page-size 64 "
    "--chunked-prefill-size 2048 --max-running-requests 64 --mem-fraction-static 0.85 "
    "--enable-hierarchical-cache --hicache-size 100 --hicache-write-policy write_through"
)


def test_a_vllm_line_is_its_scenario():
    scenario = kv.Scenario.from_yaml(scenario_of_launch(VLLM, "h200"))
    expected = {
        "model": "llama-3.1-70b",
        "replica.step_time": "roofline:llama-3.1-70b@h200:tp4,kv-fp8",
        "replica.max_num_seqs": 128,
        "replica.max_num_batched_tokens": 4096,
        "replica.max_model_len": 32768,
        "cache.block_size": 32,
        "cache.kv_dtype": "fp8",
        "tiers.gpu.capacity": "4000 blocks",
        "tiers.cpu.capacity": "64GiB",
    }
    assert {key: scenario[key] for key in expected} == expected
    text = scenario_of_launch(VLLM, "h200")
    assert "# not simulated: --port 8000\n" in text
    assert "# not simulated: --trust-remote-code\n" in text


def test_an_sglang_line_is_its_scenario():
    scenario = kv.Scenario.from_yaml(scenario_of_launch(SGLANG, "h100"))
    expected = {
        "model": "qwen3-32b",
        "replica.step_time": "roofline:qwen3-32b@h100:tp2",
        "cluster.machines": 2,
        "cache.block_size": 64,
        "replica.max_num_batched_tokens": 2048,
        "replica.max_num_seqs": 64,
        "replica.gpu_memory_utilization": 0.85,
        "tiers.cpu.capacity": "100GB",
        "write.policy": "through",
    }
    assert {key: scenario[key] for key in expected} == expected
    assert "# not simulated: --enable-hierarchical-cache\n" in scenario_of_launch(SGLANG, "h100")


@pytest.mark.parametrize(("line", "engine"), [(VLLM, "vllm"), (SGLANG, "sglang")])
def test_a_scenario_goes_back_and_forth(line, engine):
    first = kv.Scenario.from_yaml(scenario_of_launch(line, "h100"))
    printed = launch_of_scenario(first.settings, engine)
    second = kv.Scenario.from_yaml(scenario_of_launch(printed, "h100"))
    assert second == first
    assert launch_of_scenario(second.settings, engine) == printed


def test_the_engines_own_defaults_and_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main.run(["init", "--from", "vllm serve meta-llama/Meta-Llama-3-8B-Instruct"]) == 0
    (tmp_path / "served.yaml").write_text(capsys.readouterr().out)
    chats = kv.generate("conversational", requests=20, block_size=16)
    run = kv.simulate(chats, "served.yaml")
    assert run.scenario["cache.block_size"] == 16
    run.save("served")
    assert main.run(["init", "--flags", "served", "--engine", "vllm"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("vllm serve llama-3-8b ")
    assert "--block-size 16 --max-num-seqs 256 --max-num-batched-tokens 8192" in printed


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-2-70b-chat-hf", "llama-2-70b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2.5-72b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
    ],
)
def test_models_by_their_names_on_hugging_face(name, known):
    assert model_of(name) == known


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--from", "ollama run llama3"], "--from: not a launch line; got 'ollama run llama3'"),
        (["--from", "vllm serve"], "--from: no model"),
        (["--from", "vllm serve acme/llama-3-9b"], "--from: a model that the catalogue does not have"),
        (["--from", "vllm serve a b"], "--from: a word that belongs to no flag; got 'b'"),
        (["--from", "vllm serve 'a"], "--from: not a command line"),
        (["--from", "vllm serve openai/gpt-oss-20b --kv-cache-dtype q4"], "--kv-cache-dtype: unknown value"),
        (["--from", "vllm serve openai/gpt-oss-20b --block-size"], "--block-size: no value"),
        (["--from", "x", "--flags", "y"], "--from, --flags: one at a time"),
        (["--flags", "none.yaml"], "error: scenario not found: none.yaml"),
    ],
)
def test_lines_that_cannot_be(argv, says, capsys):
    assert main.run(["init", *argv]) == 2
    assert capsys.readouterr().err.startswith(says)
