"""Engines' launch lines become scenarios that run, and scenarios launch lines."""

import re
import shlex
from types import SimpleNamespace

import kvcache_sim as kv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli import main
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.launch.making import Making
from kvcache_sim.scenario.launch.to_line import launch_of_scenario
from kvcache_sim.scenario.launch.to_scenario import _allow_long, model_of, scenario_of_launch
from kvcache_sim.scenario.yaml_tree import Tree
from support.examples import examples

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
    connector = scenario_of_launch(f"{VLLM} --kv-transfer-config {{}} --enable-chunked-prefill", "h200")
    assert "# not simulated: --kv-transfer-config {}\n" in connector
    assert "# nearest to --kv-transfer-config: tiers.cpu.semantics: lmcache" in connector
    assert "# done anyway: --enable-chunked-prefill\n" in connector


def test_a_line_of_a_measured_deployment_has_its_own_iterations():
    """A set of vLLM's own iterations with the model's formats, else the roofline."""
    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct"
    for text, gpu, expected in (
        (line, "h100", "h100-llama-3.1-8b-tp1"),
        ("vllm serve Qwen/Qwen3-32B -tp 8", "b300", "b300-qwen3-32b-tp8"),
        (f"{line} --kv-cache-dtype fp8", "h100", "roofline:llama-3.1-8b@h100:kv-fp8"),
        (f"{line} -tp 2", "h100", "roofline:llama-3.1-8b@h100:tp2"),
        (line, "a100", "roofline:llama-3.1-8b@a100"),
        (
            "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B",
            "h100",
            "roofline:llama-3.1-8b@h100",
        ),
    ):
        assert kv.Scenario.from_yaml(scenario_of_launch(text, gpu))["replica.step_time"] == expected


#: Words of a line after ``vllm serve`` → the format in its source of step times; "" for the model's own.
WEIGHTS = {
    "Qwen/Qwen3-32B": "",
    "Qwen/Qwen3-32B-FP8": "fp8",
    "Qwen/Qwen3-32B -q fp8": "fp8",
    "RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic": "fp8",
    "x/Llama-3.1-8B-Instruct-quantized.w4a16": "int4-g128",
    "Qwen/Qwen2.5-7B-Instruct-AWQ --quantization awq_marlin": "int4-g128",
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8 -q gptq_marlin": "int8",
    "nvidia/Llama-3.1-8B-Instruct-NVFP4 -q modelopt_fp4": "nvfp4",
    "x/Qwen3_8B_bf16": "",
    "deepseek-ai/DeepSeek-V3 -tp 16 -q fp8": "",
    "x/DeepSeek-V3-BF16 -tp 32": "bf16",
    "openai/gpt-oss-20b -q mxfp4": "",
}


@pytest.mark.parametrize(("words", "dtype"), WEIGHTS.items())
def test_the_format_of_weights_is_the_flags_or_the_names(words: str, dtype: str):
    text = scenario_of_launch(f"vllm serve {words} --max-model-len 4096", "h200")
    scenario = kv.Scenario.from_yaml(text)
    assert measured_on(scenario["replica.step_time"]).weight_dtype == dtype
    assert "# not simulated" not in text
    assert bool(dtype) == (f"# assumed: all weights but the embeddings are {dtype}, as " in text)
    line = launch_of_scenario(scenario.settings, "vllm")
    again = kv.Scenario.from_yaml(scenario_of_launch(line.line, "h200"))
    assert measured_on(again["replica.step_time"]).weight_dtype == (
        dtype if "--quantization" in line.line else ""
    )
    assert ("--quantization" in line.line) == (dtype not in ("", "bf16"))
    assert (f"weights in {dtype} (replica.step_time)" in line.without_flag) == (dtype == "bf16")


def test_formats_that_only_a_checkpoint_states_are_left():
    for flags in ("-q gguf", "-q compressed-tensors"):
        assert f"# not simulated: --quantization {flags[3:]}\n" in scenario_of_launch(
            f"vllm serve Qwen/Qwen3-8B {flags}", "h200"
        )
    named = scenario_of_launch("vllm serve Qwen/Qwen3-8B-FP8 -q compressed-tensors", "h200")
    assert "not simulated" not in named
    other = scenario_of_launch("vllm serve Qwen/Qwen3-8B-FP8 -q awq", "h200")
    assert "# not simulated: --quantization awq\n" in other
    assert "roofline:qwen3-8b@h200:fp8" in other


LMCACHE = "LMCACHE_MAX_LOCAL_CPU_SIZE=20 {} vllm serve Qwen/Qwen3-8B -tp 2 --kv-transfer-config '{}'"
LMCACHE_CONNECTOR = '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ("", ("40GiB", 256, None)),
        ("LMCACHE_CHUNK_SIZE=512 LMCACHE_MAX_LOCAL_DISK_SIZE=1.5", ("40GiB", 512, "3GiB")),
    ],
)
def test_variables_of_lmcache_are_tiers(variables: str, expected: tuple[object, ...]):
    text = scenario_of_launch(LMCACHE.format(variables, LMCACHE_CONNECTOR), "h200")
    scenario = kv.Scenario.from_yaml(text)
    cpu, disk = (scenario.settings["tiers"].get(tier) or {} for tier in ("cpu", "disk"))
    assert (cpu["capacity"], cpu["chunk_tokens"], disk.get("capacity")) == expected
    assert scenario["tiers.cpu.semantics"] == "lmcache"
    assert "not simulated" not in text
    assert ("# assumed: LMCache's defaults LMCACHE_CHUNK_SIZE=256\n" in text) == (not variables)


def test_what_is_no_lmcache_is_left():
    for config in ('{"kv_connector": "NixlConnector"}', "[1]", "{"):
        text = scenario_of_launch(LMCACHE.format("", config), "h200")
        assert f"# not simulated: --kv-transfer-config {config}\n" in text
        assert "# not simulated: LMCACHE_MAX_LOCAL_CPU_SIZE=20\n" in text
        assert "\ntiers:" not in text
    with pytest.raises(kv.UsageError, match="LMCACHE_CHUNK_SIZE: no size; got 'x'; expected 0 to 1000000"):
        scenario_of_launch(LMCACHE.format("LMCACHE_CHUNK_SIZE=x", LMCACHE_CONNECTOR), "h200")
    refused = scenario_of_launch(LMCACHE.format("LMCACHE_CHUNK_SIZE=100", LMCACHE_CONNECTOR), "h200")
    assert "(a chunk is whole blocks, and cache.block_size is 16)\n" in refused


def test_sglangs_ratio_is_one_of_the_gpus_blocks():
    line = (
        "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --page-size 64 --enable-hierarchical-cache"
    )
    for more, ratio in (("", 2), (" --hicache-ratio 3.5", 3.5)):
        text = scenario_of_launch(line + more, "h200")
        scenario = kv.Scenario.from_yaml(text)
        gpu, cpu = (
            int(scenario[f"tiers.{tier}.capacity"].removesuffix(" blocks")) for tier in ("gpu", "cpu")
        )
        assert cpu == int(ratio * gpu)
        assert "not simulated" not in text
        assert f"# assumed: the CPU tier holds {ratio if more else '2.0'} times the blocks of the GPU" in text
    own = scenario_of_launch(f"{line} --schedule-policy lpm", "h200")
    assert "# not simulated: --enable-hierarchical-cache (" in own


def test_a_containers_line_is_that_of_its_engine():
    inside = scenario_of_launch("vllm serve --model Qwen/Qwen3-8B -tp 2", "h100")
    for image in ("vllm/vllm-openai", "docker.io/vllm/vllm-openai:v0.11.0", "vllm/vllm-openai@sha256:0f"):
        text = scenario_of_launch(
            f"docker run --gpus all -p 8000:8000 {image} --model Qwen/Qwen3-8B -tp 2", "h100"
        )
        assert text.partition("\n")[2] == inside.partition("\n")[2]


def test_secrets_of_a_line_stay_out_of_its_scenario():
    text = scenario_of_launch(
        "HF_TOKEN=hidden AWS_SECRET=hidden vllm serve --api-key hidden hidden2 --hf-token=hidden "
        "--model Qwen/Qwen3-8B --ssl-keyfile-password hidden --max-num-batched-tokens 4096",
        "h200",
    )
    assert "hidden" not in text
    assert text.count("***") == 10
    assert "--max-num-batched-tokens 4096\n" in text


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
        "tiers.cpu.capacity": "200GB",  # 100 a rank
        "write.policy": "through",
    }
    assert {key: scenario[key] for key in expected} == expected
    assert "# not simulated: --enable-hierarchical-cache\n" not in scenario_of_launch(SGLANG, "h100")


VLLM_DRAFTS = (
    "vllm serve openai/gpt-oss-120b -tp 2 -dp 4 --enable-expert-parallel --async-scheduling --max-model-len 32k "
    """--speculative-config '{"method": "eagle3", "model": "x/y", "num_speculative_tokens": 3}' """
)
SGLANG_RANKS = (
    "SGLANG_ENABLE_X=1 python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp 4 --dp 4 "
    "--enable-dp-attention --enable-hierarchical-cache --hicache-ratio 2 --max-total-tokens 400000 --page-size 64"
)
SGLANG_OWN = (
    "python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 4 --schedule-policy lpm --page-size 16 "
    "--enable-mixed-chunk --disable-overlap-schedule --max-prefill-tokens 4096 --schedule-conservativeness 0.5"
)
VLLM_OWN = (
    "vllm serve --enforce-eager Qwen/Qwen3-32B -tp 2 --long_prefill_token_threshold=512 --async-scheduling "
    "--kv-cache-memory-bytes 20G --scheduling-policy priority --served-model-name a b"
)


def test_drafts_ranks_and_the_engines_own_schedulers():
    drafts = scenario_of_launch(VLLM_DRAFTS, "h200")
    scenario = kv.Scenario.from_yaml(drafts)
    assert scenario["replica.speculation"] == {
        "tokens": 3, "acceptance": [0.7, 0.49, 0.343], "mean_length": None, "draft_time": "0ns", "eagle": True
    }  # fmt: skip
    assert scenario["replica.dp"] == scenario["cluster.machines"] == 4
    assert scenario["replica.max_model_len"] == 32_000
    assert "# assumed: each draft is accepted with probability 0.7" in drafts
    assert "# not simulated: --async-scheduling (not with drafts)\n" in drafts
    ranks = scenario_of_launch(SGLANG_RANKS, "h200")
    scenario = kv.Scenario.from_yaml(ranks)
    assert (scenario["replica.dp"], scenario["tiers.gpu.capacity"]) == (4, "6250 blocks")
    assert scenario["replica.step_time"] == "roofline:qwen3-30b-a3b@h200:dp4", (
        "a rank's attention is on one GPU"
    )
    assert "# not simulated: SGLANG_ENABLE_X=1\n# not simulated: --enable-hierarchical-cache (" in ranks
    assert "# not simulated: --hicache-ratio 2\n" in ranks
    own = kv.Scenario.from_yaml(scenario_of_launch(SGLANG_OWN, "h200"))
    assert (own["replica.scheduler"], own["replica.schedule_policy"]) == ("sglang", "lpm")
    assert own["replica.max_prefill_tokens"] == 4096
    own = kv.Scenario.from_yaml(scenario_of_launch(VLLM_OWN, "h200"))
    assert (own["replica.scheduler"], own["replica.queue_order"]) == ("vllm", "priority")
    assert own["tiers.gpu.capacity"] == "40GiB", "20 GiB on each of two GPUs"
    alongside = scenario_of_launch(VLLM_OWN + " --kv-offloading-size 8", "h200")
    assert (
        "--long-prefill-token-threshold 512 (of the engine's own scheduler, which has no lower tiers"
        in alongside
    )
    printed = launch_of_scenario(scenario.settings, "sglang").line
    assert re.search(r"--enable-dp-attention --tp\S* 4 ", printed), "SGLang counts the GPUs of all ranks"
    tiered = scenario_of_launch("vllm serve Qwen/Qwen3-30B-A3B -dp 2 --kv-offloading-size 8", "h200")
    assert "# assumed: ranks step by themselves: lock step goes with no lower tier here\n" in tiered
    tiered = kv.Scenario.from_yaml(tiered)
    assert (tiered["replica.dp"], tiered["cluster.machines"], tiered["router.policy"]) == (1, 2, "vllm-dp")
    dense = kv.Scenario.from_yaml(scenario_of_launch("vllm serve Qwen/Qwen3-32B -tp 2 -dp 3", "h200"))
    assert (dense["replica.dp"], dense["cluster.machines"], dense["router.policy"]) == (1, 3, "vllm-dp")


STAGES = "vllm serve Qwen/Qwen3-32B -tp 2 -pp 4 --kv-cache-memory-bytes 10G"
SHARED = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 16 -dcp 2 --block-size 32"
WINDOWS_FULL = "vllm serve openai/gpt-oss-120b --disable-hybrid-kv-cache-manager --kv-cache-memory-bytes 12G"
BLOCKS_FULL = (
    "vllm serve openai/gpt-oss-120b --disable-hybrid-kv-cache-manager --num-gpu-blocks-override 5000"
)


def test_one_engine_over_several_gpus():
    stages = kv.Scenario.from_yaml(scenario_of_launch(STAGES, "h200"))
    assert (stages["replica.pp"], stages["replica.scheduler"]) == (4, "vllm")
    assert stages["tiers.gpu.capacity"] == "80GiB", "10 GiB on each of 2 × 4 GPUs"
    assert (
        "--pipeline-parallel-size 2 (tiers.gpu.capacity: auto does not support pipeline stages"
        in scenario_of_launch("vllm serve Qwen/Qwen3-32B -pp 2", "h200")
    )
    shared = kv.Scenario.from_yaml(scenario_of_launch(SHARED, "h200"))
    alone = kv.Scenario.from_yaml(scenario_of_launch(SHARED.replace("-dcp 2", ""), "h200"))
    assert (shared["replica.cp"], shared["cache.block_size"]) == (2, 64), "32 tokens on each of two GPUs"
    assert alone["cache.block_size"] == 32
    tokens = [int(one["tiers.gpu.capacity"].split()[0]) * one["cache.block_size"] for one in (shared, alone)]
    assert tokens[0] == pytest.approx(2 * tokens[1], rel=1e-3)
    refused = scenario_of_launch(SHARED.replace("-tp 16", "-tp 8"), "h200")
    assert (
        "# not simulated: --decode-context-parallel-size 2 (the 8 GPUs of the step-time set hold 1" in refused
    )
    assert kv.Scenario.from_yaml(refused)["cache.block_size"] == 32


def test_windows_that_keep_every_block():
    """gpt-oss-120b: 36 layers of 8 heads of 64 values, keys and values in 2 bytes; half of them are
    windows."""
    full = kv.Scenario.from_yaml(scenario_of_launch(WINDOWS_FULL, "h200"))
    assert full["cache.layer_groups"] == "as-full"
    assert full["cache.kv_bytes_per_token"] == f"{36 * 2 * 8 * 64 * 2 // 1024}KiB"
    blocks = kv.Scenario.from_yaml(scenario_of_launch(BLOCKS_FULL, "h200"))
    assert (blocks["cache.layer_groups"], blocks["cache.kv_bytes_per_token"]) == ("as-full", "36KiB")
    roomy = scenario_of_launch("vllm serve openai/gpt-oss-120b --disable-hybrid-kv-cache-manager", "h200")
    usual = kv.Scenario.from_yaml(scenario_of_launch("vllm serve openai/gpt-oss-120b", "h200"))
    bytes_ = int(usual["tiers.gpu.capacity"].split()[0]) * 16 * 36 * 1024
    assert f'capacity: "{bytes_ // 1024}KiB"' in roomy
    assert "# assumed: tiers.gpu.capacity is" in roomy
    next_ = "vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct -tp 4 --mamba-cache-mode align"
    states = scenario_of_launch(f"{next_} --disable-hybrid-kv-cache-manager", "h200")
    assert "# not simulated: --disable-hybrid-kv-cache-manager (the engine refuses it: a state" in states
    assert "# nearest to --mamba-cache-mode: cache.layer_groups: by-kind" in states
    both = "vllm serve Qwen/Qwen3-32B --disable-hybrid-kv-cache-manager"
    assert "manager (each layer keeps every block anyway)" in scenario_of_launch(both, "h200")


def test_two_flags_of_one_setting_and_a_cache_that_is_off():
    twice = "vllm serve Qwen/Qwen3-32B {} --num-gpu-blocks-override 9000 {} --no-async-scheduling"
    for before, after in (("--kv-cache-memory-bytes 8G", ""), ("", "--kv-cache-memory-bytes 8G")):
        text = scenario_of_launch(twice.format(before, after) + " --async-scheduling", "h200")
        assert "# not simulated: --kv-cache-memory-bytes 8G (--num-gpu-blocks-override prevails)\n" in text
        assert "# not simulated: --no-async-scheduling (--async-scheduling prevails)\n" in text
        scenario = kv.Scenario.from_yaml(text)
        assert scenario["tiers.gpu.capacity"] == "9000 blocks"
        assert scenario["replica.async_scheduling"] == "stop-token"
    off = "python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2 --disable-radix-cache"
    drafting = f"{off} --speculative-algorithm EAGLE3 --speculative-num-steps 2"
    drafts = kv.Scenario.from_yaml(scenario_of_launch(drafting, "h200"))
    assert (drafts["replica.speculation"]["tokens"], drafts["cache.enabled"]) == (2, False)
    mixed = scenario_of_launch(f"{off} --enable-mixed-chunk", "h200")
    assert (
        "--enable-mixed-chunk (of the engine's own scheduler, which has no cache switched off here)" in mixed
    )


#: Flags of each engine, each with a value that may be, "" for none.
KNOWN = {
    "vllm": {
        "--max-num-seqs": "64", "--block-size": "32", "--kv-offloading-size": "8", "--async-scheduling": "",
        "--no-async-scheduling": "", "--speculative-config": '{"num_speculative_tokens": 2}', "-dp": "2",
        "--scheduling-policy": "priority", "--long-prefill-token-threshold": "256", "--kv-cache-dtype": "fp8",
        "--no-enable-prefix-caching": "", "--max-model-len": "16K", "--kv-cache-memory-bytes": "8G",
        "--kv-transfer-config": '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}',
        "--kv-offloading-backend": "lmcache", "--enforce-eager": "", "--pipeline-parallel-size": "2",
        "--decode-context-parallel-size": "2", "-pcp": "2", "-tp": "8", "--mamba-block-size": "16",
        "--disable-hybrid-kv-cache-manager": "", "--mamba-cache-mode": "align", "--num-gpu-blocks-override": "9000",
        "--compilation-config": '{"level": 3}', "--served-model-name": "a", "--swap-space": "4", "-q": "fp8",
    },
    "sglang": {
        "--page-size": "64", "--dp": "2", "--enable-dp-attention": "", "--enable-hierarchical-cache": "",
        "--hicache-size": "30", "--hicache-ratio": "2", "--hicache-write-policy": "write_through",
        "--hicache-storage-backend": "mooncake", "--schedule-policy": "lpm", "--disable-overlap-schedule": "",
        "--speculative-algorithm": "EAGLE3", "--speculative-num-steps": "3", "--speculative-eagle-topk": "4",
        "--speculative-num-draft-tokens": "8", "--max-total-tokens": "200000", "--enable-mixed-chunk": "",
        "--disaggregation-mode": "prefill", "--ep-size": "2", "--attention-backend": "fa3", "--dist-timeout": "3",
        "--disable-radix-cache": "", "--radix-eviction-policy": "lfu",
    },
}  # fmt: skip
START = {"vllm": "vllm serve", "sglang": "python -m sglang.launch_server --model-path"}
MODELS = ("Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b")


@examples(60)
@given(st.sampled_from(sorted(KNOWN)), st.sampled_from(MODELS), st.data())
def test_no_flag_is_dropped_silently(engine, model, data):
    """Any flags together make a scenario that runs; without one of them it differs, or the flag is named."""
    chosen = data.draw(st.lists(st.sampled_from(sorted(KNOWN[engine])), unique=True, min_size=1))
    taken = data.draw(st.sampled_from(chosen))

    def made(flags):
        words = [word for flag in flags for word in (flag, KNOWN[engine][flag]) if word]
        text = scenario_of_launch(f"{START[engine]} {model} {shlex.join(words)}", "h200")
        return kv.Scenario.from_yaml(text), text.partition("\n")[2]

    (scenario, text), (without, _) = made(chosen), made([flag for flag in chosen if flag != taken])
    short = {"-dp": "--data-parallel-size", "-q": "--quantization", "-pcp": "--prefill-context-parallel-size"}
    long = short.get(taken, taken)
    named = f"# not simulated: {long}" in text
    said_anyway = {
        "--no-async-scheduling", "--disable-overlap-schedule", "--enable-hierarchical-cache",
        "--speculative-num-draft-tokens", "--speculative-num-steps",
    }  # fmt: skip
    assert named or scenario != without or long in said_anyway


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        (VLLM, "vllm"), (SGLANG, "sglang"), (VLLM_DRAFTS, "vllm"), (VLLM_OWN, "vllm"), (SGLANG_RANKS, "sglang"),
        (SGLANG_OWN, "sglang"), (STAGES, "vllm"), (SHARED, "vllm"), (WINDOWS_FULL, "vllm"), (BLOCKS_FULL, "vllm"),
    ],
)  # fmt: skip
def test_a_scenario_goes_back_and_forth(line, engine):
    first = kv.Scenario.from_yaml(scenario_of_launch(line, "h100"))
    printed = launch_of_scenario(first.settings, engine)
    second = kv.Scenario.from_yaml(scenario_of_launch(printed.line, "h100"))
    assert second == first
    assert launch_of_scenario(second.settings, engine) == printed
    assert printed.without_flag == ()


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


@pytest.mark.parametrize("given", [None, "auto", 131_071, 131_072, 131_073, 200_000])
@pytest.mark.parametrize("environment", [(), ("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",), ("OTHER=1",)])
@pytest.mark.parametrize("named", ["meta-llama/Llama-3.1-8B", "Org/Llama-3.1-8B-2507"])
def test_a_context_above_the_models_needs_a_word_or_a_release(given, environment, named):
    """The model has 131,072 tokens of context; another release may have more, and that is said."""
    line = SimpleNamespace(environment=environment, model=named)
    made = Making(line, Tree({"replica": {} if given is None else {"max_model_len": given}}))
    _allow_long(made, "llama-3.1-8b")
    beyond = isinstance(given, int) and given > 131_072
    allowed, release = environment[:1] == ("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",), named.endswith("2507")
    assert made.tree.values["replica"].get("allow_long_max_model_len", False) is (
        beyond and (allowed or release)
    )
    said = f"{named} has a context of {given:,} tokens; llama-3.1-8b has 131,072" if beyond else ""
    assert made.assumed == [said] * (beyond and release and not allowed)
