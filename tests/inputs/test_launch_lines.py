"""Engines' launch lines become scenarios that run, and scenarios launch lines."""

import shlex

import kvcache_sim as kv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli import main
from kvcache_sim.scenario.launch.deployment import read_deployment
from kvcache_sim.scenario.launch.to_line import Launch, launch_of_scenario
from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch
from support.examples import examples

#: Lines, of which those without an engine are of ``vllm serve`` or SGLang's server.
LINES = {
    "engines": """
        CUDA_VISIBLE_DEVICES=0 vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 4 --max-num-seqs=128
            --max-num-batched-tokens 4096 --block-size 32 --num-gpu-blocks-override 4000 --kv-offloading-size 64
            --kv-cache-dtype fp8 --max-model-len 32768 --port 8000 --trust-remote-code
        vllm serve openai/gpt-oss-120b -tp 2 -dp 4 --enable-expert-parallel --async-scheduling --max-model-len 32k
            --speculative-config '{"method": "eagle3", "model": "x/y", "num_speculative_tokens": 3}'
        vllm serve --enforce-eager Qwen/Qwen3-32B -tp 2 --long_prefill_token_threshold=512 --async-scheduling
            --kv-cache-memory-bytes 20G --scheduling-policy priority --served-model-name a b
        vllm serve Qwen/Qwen3-32B -tp 2 --long-prefill-token-threshold=512 --kv-offloading-size 8
        vllm serve Qwen/Qwen3-32B -tp 2 --max-num-active-seqs 8 --max-num-scheduled-tokens 4096
            --prefill-schedule-interval 4 --long-prefill-token-threshold 64
            --long-prefill-token-threshold-adaptive --max-num-queued-reqs 9 --max-num-queued-tokens 90000
        vllm serve Qwen/Qwen3-32B -tp 2 -pp 4 --kv-cache-memory-bytes 10G
        vllm serve Qwen/Qwen3-32B -pp 2
        vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 16 -dcp 2 --block-size 32
        vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 8 -dcp 2 --block-size 32
        vllm serve openai/gpt-oss-120b --disable-hybrid-kv-cache-manager --kv-cache-memory-bytes 12G
        vllm serve openai/gpt-oss-120b --disable-hybrid-kv-cache-manager --num-gpu-blocks-override 5000
        vllm serve openai/gpt-oss-120b --disable-hybrid-kv-cache-manager
        vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct -tp 4 --mamba-cache-mode align
            --disable-hybrid-kv-cache-manager
        vllm serve Qwen/Qwen3-32B --disable-hybrid-kv-cache-manager
        vllm serve Qwen/Qwen3-30B-A3B -dp 2 --kv-offloading-size 8
        vllm serve Qwen/Qwen3-32B -tp 2 -dp 3
        vllm serve Qwen/Qwen3-32B --kv-cache-memory-bytes 8G --num-gpu-blocks-override 9000
            --no-async-scheduling --async-scheduling
        vllm serve Qwen/Qwen3-8B --kv-transfer-config {} --enable-chunked-prefill
        docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.11.0 --model Qwen/Qwen3-8B -tp 2
        python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2 --dp 2 --page-size 64
            --chunked-prefill-size 2048 --max-running-requests 64 --mem-fraction-static 0.85
            --enable-hierarchical-cache --hicache-size 100 --hicache-write-policy write_through
        SGLANG_ENABLE_X=1 python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --tp 4 --dp 4
            --enable-dp-attention --enable-hierarchical-cache --hicache-ratio 2 --max-total-tokens 400000
            --page-size 64
        python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 4 --schedule-policy lpm --page-size 16
            --enable-mixed-chunk --disable-overlap-schedule --max-prefill-tokens 4096
            --schedule-conservativeness 0.5 --max-queued-requests 30
        python -m sglang.launch_server --model-path Qwen/Qwen3-8B --page-size 64 --enable-hierarchical-cache
        python -m sglang.launch_server --model-path Qwen/Qwen3-8B --page-size 64 --enable-hierarchical-cache
            --hicache-ratio 3.5
        python -m sglang.launch_server --model-path Qwen/Qwen3-8B --enable-hierarchical-cache
            --schedule-policy lpm
        python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2 --disable-radix-cache
            --enable-mixed-chunk
        python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2 --disable-radix-cache
            --speculative-algorithm EAGLE3 --speculative-num-steps 2
        python -m sglang.launch_server --model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM
            --speculative-num-draft-tokens 5
        """,
    "models and weights": """
        vllm serve meta-llama/Llama-3.1-8B-Instruct
        vllm serve meta-llama/Llama-3.1-8B-Instruct --kv-cache-dtype fp8
        python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B
        vllm serve meta-llama/Llama-2-70b-chat-hf -tp 4
        vllm serve Qwen/Qwen3-30B-A3B-Instruct-2507 --max-model-len 99999
        vllm serve Qwen/Qwen3-32B-FP8
        vllm serve Qwen/Qwen3-32B -q fp8
        vllm serve x/Llama-3.1-8B-Instruct-quantized.w4a16
        vllm serve Qwen/Qwen2.5-7B-Instruct-AWQ --quantization awq_marlin
        vllm serve Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8 -q gptq_marlin
        vllm serve nvidia/Llama-3.1-8B-Instruct-NVFP4 -q modelopt_fp4
        vllm serve deepseek-ai/DeepSeek-V3 -tp 16 -q fp8
        vllm serve x/DeepSeek-V3-BF16 -tp 32
        vllm serve openai/gpt-oss-20b -q mxfp4
        vllm serve Qwen/Qwen3-8B -q gguf
        vllm serve Qwen/Qwen3-8B-FP8 -q compressed-tensors
        vllm serve Qwen/Qwen3-8B-FP8 -q awq
        vllm serve meta-llama/Llama-3.1-8B --max-model-len 131073
        vllm serve Org/Llama-3.1-8B-2507 --max-model-len 131072
        vllm serve Org/Llama-3.1-8B-2507 --max-model-len 131073
        VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve meta-llama/Llama-3.1-8B --max-model-len 131073
        """,
    "tiers and conventions": """
        vllm serve Qwen/Qwen3-8B -tp 2 --kv-offloading-size 256 --kv-offloading-backend native --cpu-offload-gb 7
        vllm serve Qwen/Qwen3-8B -tp 2 --kv-offloading-size 8 --kv-offloading-backend lmcache
        vllm serve Qwen/Qwen3-8B --kv-transfer-config '{"kv_connector": "MultiConnector", "kv_connector_extra_config":
            {"connectors": [{"kv_connector": "NixlConnector"}, {"kv_connector": "OffloadingConnector",
            "kv_connector_extra_config": {"num_cpu_blocks": 64000, "block_size": 64, "eviction_policy": "arc",
            "secondary_tiers": [{"type": "fs"}]}}]}}'
        vllm serve Qwen/Qwen3-8B -tp 2 --kv-transfer-config '{"kv_connector": "SimpleCPUOffloadConnector",
            "kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": 4294967296, "lazy_offload": true}}'
        vllm serve openai/gpt-oss-20b --kv-offloading-size 8
        vllm serve Qwen/Qwen3-8B --no-enable-prefix-caching
            --kv-transfer-config '{"kv_connector": "LMCacheConnectorV1"}'
        DYN_KVBM_CPU_CACHE_GB=2 vllm serve Qwen/Qwen3-8B --kv-transfer-config '{"kv_connector": "DynamoConnector"}'
        vllm serve Qwen/Qwen3-8B --performance-mode throughput --max-num-seqs 64
        vllm serve moonshotai/Kimi-K2-Instruct -tp 8 -pp 2 --max-model-len 2048 --enable-expert-parallel
        python -m sglang.launch_server --model-path Qwen/Qwen3-8B --page-size 64 --enable-hierarchical-cache
            --hicache-size 0 --hicache-storage-backend file --hicache-storage-prefetch-policy wait_complete
        python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.2 --tp-size 8 --dp-size 8
            --enable-dp-attention --chunked-prefill-size 4096 --max-running-requests 32 --mem-fraction-static 0.8
        """,
    "LMCache": """
        LMCACHE_MAX_LOCAL_CPU_SIZE=20 vllm serve Qwen/Qwen3-8B -tp 2
            --kv-transfer-config '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'
        LMCACHE_MAX_LOCAL_CPU_SIZE=20 LMCACHE_CHUNK_SIZE=512 LMCACHE_MAX_LOCAL_DISK_SIZE=1.5 vllm serve
            Qwen/Qwen3-8B -tp 2 --kv-transfer-config '{"kv_connector": "LMCacheConnectorV1"}'
        LMCACHE_MAX_LOCAL_CPU_SIZE=20 LMCACHE_CHUNK_SIZE=x vllm serve Qwen/Qwen3-8B
            --kv-transfer-config '{"kv_connector": "LMCacheConnectorV1"}'
        LMCACHE_MAX_LOCAL_CPU_SIZE=20 LMCACHE_CHUNK_SIZE=100 vllm serve Qwen/Qwen3-8B
            --kv-transfer-config '{"kv_connector": "LMCacheConnectorV1"}'
        LMCACHE_MAX_LOCAL_CPU_SIZE=20 vllm serve Qwen/Qwen3-8B
            --kv-transfer-config '{"kv_connector": "NixlConnector"}'
        LMCACHE_MAX_LOCAL_CPU_SIZE=20 vllm serve Qwen/Qwen3-8B --kv-transfer-config [1]
        """,
}
#: Settings of scenarios that are written as lines of an engine.
SETTINGS = """
    vllm
    vllm replica.scheduler=vllm cache.semantics=vllm
    vllm tiers.cpu.capacity=64GiB
    vllm cluster.machines=3 router.policy=vllm-dp
    vllm cluster.machines=3 router.policy=least-loaded
    vllm tiers.cpu.capacity=64GiB write.policy=through fetch.policy=cheaper cluster.machines=2 pools.prefill=1
        pools.decode=1 handover.transfer=layer-by-layer
    vllm cost.gpu_hour=3 name=other
    vllm replica.step_time=roofline:gpt-oss-120b@h100:tp2 cache.layer_groups=as-full tiers.cpu.capacity=64GiB
        cache.kv_bytes_per_token=73728B
    vllm replica.step_time=roofline:gpt-oss-120b@h100:tp2 cache.layer_groups=as-full tiers.cpu.capacity=64GiB
        cache.kv_bytes_per_token=36864B
    sglang
    sglang replica.scheduler=sglang cache.semantics=sglang
    sglang tiers.cpu.capacity=64GB write.policy=back
    sglang tiers.cpu.capacity=64GB write.policy=through
    sglang cluster.machines=3 router.policy=least-loaded
    sglang cluster.machines=3
    """


def joined(text: str) -> list[str]:
    """Return lines with those that are further indented put behind the ones above them."""
    found: list[str] = []
    lines = text.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    for line in filter(str.strip, lines):
        if line[indent] == " ":
            found[-1] += f" {line.strip()}"
        else:
            found.append(line.strip())
    return found


def there_and_back(line: str) -> str:
    """Return the scenario of a line, and the line of that scenario; or what refuses them."""
    engine = "sglang" if "sglang" in line else "vllm"
    try:
        text = scenario_of_launch(line, "h200")
        back = launch_of_scenario(kv.Scenario.from_yaml(text).settings, engine)
    except kv.KvsimError as refusal:
        return f"  {refusal}"
    try:
        again = kv.Scenario.from_yaml(scenario_of_launch(back.line, "h200"))
    except kv.KvsimError as refusal:
        kept = f" ({refusal.what})"
    else:
        kept = "" if back.without_flag or again == kv.Scenario.from_yaml(text) else " (another scenario)"
    lines = text.splitlines(keepends=True)
    shown = "".join(line for line in lines if not line.startswith(("# Made from", "# GPU: h200")))
    return f"{shown}→ {back.line}{kept}{named(back)}"


def named(line: Launch) -> str:
    return f"\n  without a flag: {', '.join(line.without_flag)}" * bool(line.without_flag)


@pytest.mark.parametrize("kind", LINES)
def test_a_line_becomes_its_scenario_and_is_said_again(kind, snapshot):
    shown = [f"$ {line}\n{there_and_back(line)}" for line in joined(LINES[kind])]
    assert "\n".join(shown) == snapshot


def test_a_scenario_becomes_a_line_and_names_what_no_flag_says(snapshot):
    shown = []
    for row in joined(SETTINGS):
        engine, *words = row.split()
        settings = {"tiers.gpu.capacity": "4000 blocks", **dict(word.split("=", 1) for word in words)}
        settings = {key: int(own) if own.isdigit() else own for key, own in settings.items()}
        found = launch_of_scenario(kv.Scenario.from_yaml("").with_(**settings).checked.resolved, engine)
        shown.append(f"{row}\n  {found.line}{named(found)}")
    assert "\n".join(shown) == snapshot


def test_secrets_of_a_line_stay_out_of_its_scenario():
    text = scenario_of_launch(
        "HF_TOKEN=hidden AWS_SECRET=hidden vllm serve --api-key hidden hidden2 --hf-token=hidden "
        "--model Qwen/Qwen3-8B --ssl-keyfile-password hidden --max-num-batched-tokens 4096",
        "h200",
    )
    assert "hidden" not in text
    assert text.count("***") == 9
    assert "--max-num-batched-tokens 4096\n" in text


@pytest.mark.parametrize(
    ("line", "model", "flags"),
    [
        ("vllm serve Q --served-model-name a b", "Q", {"--served-model-name": "a b"}),
        # a number below zero is a value
        ("vllm serve Q --max-model-len -1 --seed -2.5", "Q", {"--max-model-len": "-1", "--seed": "-2.5"}),
        ("vllm serve Q --enforce-eager --seed=3", "Q", {"--enforce-eager": "", "--seed": "3"}),
    ],
)
def test_words_that_belong_together(line, model, flags):
    (worker,) = read_deployment(line).workers
    assert (worker.line.model, worker.line.flags) == (model, flags)


#: Flags of each engine, each with a value that may be, none for a switch.
KNOWN = {
    "vllm": """
        --max-num-seqs 64; --block-size 32; --kv-offloading-size 8; --async-scheduling; --no-async-scheduling
        --speculative-config {"num_speculative_tokens": 2}; -dp 2; --scheduling-policy priority; -q fp8
        --long-prefill-token-threshold 256; --kv-cache-dtype fp8; --no-enable-prefix-caching
        --max-model-len 16K; --kv-cache-memory-bytes 8G; --kv-offloading-backend lmcache; --enforce-eager
        --kv-transfer-config {"kv_connector": "NixlConnector", "kv_role": "kv_both"}; --swap-space 4; -tp 8
        --pipeline-parallel-size 2; --decode-context-parallel-size 2; -pcp 2; --mamba-block-size 16
        --disable-hybrid-kv-cache-manager; --mamba-cache-mode align; --num-gpu-blocks-override 9000
        --compilation-config {"level": 3}; --served-model-name a
        """,
    "sglang": """
        --page-size 64; --dp 2; --enable-dp-attention; --enable-hierarchical-cache; --hicache-size 30
        --hicache-ratio 2; --hicache-write-policy write_through; --hicache-storage-backend mooncake
        --schedule-policy lpm; --disable-overlap-schedule; --speculative-algorithm EAGLE3
        --speculative-num-steps 3; --speculative-eagle-topk 4; --speculative-num-draft-tokens 8
        --max-total-tokens 200000; --enable-mixed-chunk; --disaggregation-mode prefill; --ep-size 2
        --attention-backend fa3; --dist-timeout 3; --disable-radix-cache; --radix-eviction-policy lfu
        """,
}
START = {"vllm": "vllm serve", "sglang": "python -m sglang.launch_server --tp 2 --model-path"}
MODELS = ("Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b")
SHORT = {"-dp": "--data-parallel-size", "-q": "--quantization", "-pcp": "--prefill-context-parallel-size"}
#: Flags that change nothing where others say the same, or that the others already decide.
SAID_ANYWAY = set(
    """
    --async-scheduling --no-async-scheduling --disable-overlap-schedule --enable-hierarchical-cache
    --speculative-num-draft-tokens --speculative-num-steps
""".split()
)


@examples(60)
@given(st.sampled_from(sorted(KNOWN)), st.sampled_from(MODELS), st.data())
def test_no_flag_is_dropped_silently(engine, model, data):
    """Any flags together make a scenario that runs; without one of them it differs, or the flag is named."""
    known = dict(flag.strip().partition(" ")[::2] for flag in KNOWN[engine].replace("\n", ";").split(";"))
    chosen = data.draw(st.lists(st.sampled_from(sorted(filter(None, known))), unique=True, min_size=1))
    taken = data.draw(st.sampled_from(chosen))

    def made(flags):
        words = [word for flag in flags for word in (flag, known[flag]) if word]
        text = scenario_of_launch(f"{START[engine]} {model} {shlex.join(words)}", "h200")
        return kv.Scenario.from_yaml(text), text.partition("\n")[2]

    (scenario, text), (without, _) = made(chosen), made([flag for flag in chosen if flag != taken])
    long = SHORT.get(taken, taken)
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    assert f" {long}" in comments or scenario != without or long in SAID_ANYWAY


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
    assert printed.startswith("vllm serve meta-llama/Meta-Llama-3-8B ")
    assert "--max-num-batched-tokens 8192 --max-num-seqs 1024" in printed
