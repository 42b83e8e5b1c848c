"""Sizes, transfers and costs where several ranks hold the same KV; hand-worked, and capacities in tokens.

Qwen3-30B-A3B has 48 layers with 4 KV heads of 128, keys and values in two bytes: 98,304 bytes a token, of
which each of 8 ranks has one head (24,576), so 196,608 on all. DeepSeek-V3 has 61 latents of 576: 70,272 bytes
a token, on each rank.
"""

import json

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.model.model_file import load_model, model_names
from kvcache_sim.scenario.kv_copies import kv_copies
from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.subject import subject_line
from support.product.scenarios import cost_of

GIB = 1 << 30
QWEN = ["model=qwen3-30b-a3b", "replica.step_time=roofline:qwen3-30b-a3b@h100:tp8"]
DEEPSEEK = ["model=deepseek-v3", "replica.step_time=roofline:deepseek-v3@h200:tp8"]
VLLM = ["cache.block_size=64", "cache.semantics=vllm", "tiers.cpu.capacity=100GiB"]
SGLANG = ["cache.block_size=1", "cache.semantics=sglang", "tiers.cpu.semantics=hicache"]
STORAGE = ["tiers.disk.capacity=200GB", "prefetch.policy=queued", "fetch.policy=wait"]
CHUNKS = ["tiers.cpu.chunk_tokens=256"]
SERVER = ["tiers.cpu.semantics=lmcache-server", "tiers.cpu.policy=lru", *CHUNKS]


def scenario(*settings):
    return scenario_from_text("workload: {kind: diverse, requests: 3}\n", "s", None, settings)


def blocks(*settings):
    return [tier.capacity_blocks for tier in scenario(*settings).settings.machines[0].tiers]


@pytest.mark.parametrize(
    ("settings", "tier", "expected"),
    [
        ([*QWEN, *SGLANG, "tiers.cpu.capacity=160GB"], 1, 20 * 10**9 // 24_576),
        ([*QWEN, *VLLM, "tiers.cpu.semantics=vllm-offload"], 1, 100 * GIB // (196_608 * 64)),
        ([*QWEN, *VLLM, "tiers.cpu.semantics=lmcache", *CHUNKS], 1, 100 * GIB // (196_608 * 64)),
        ([*QWEN, *VLLM, *SERVER], 1, 100 * GIB // (196_608 * 64)),
        ([*QWEN, "cache.block_size=16", "tiers.cpu.capacity=100GiB"], 1, 34_133),
        ([*QWEN, "cache.block_size=16", "tiers.gpu.capacity=100GiB"], 0, 34_133),
        ([*DEEPSEEK, *SGLANG, "tiers.cpu.capacity=160GB", *STORAGE], 1, 20 * 10**9 // 70_272),
        ([*DEEPSEEK, *SGLANG, "tiers.cpu.capacity=160GB", *STORAGE], 2, 200 * 10**9 // 70_272),
        ([*QWEN, *SGLANG, "tiers.cpu.capacity=160GB", *STORAGE], 2, 200 * 10**9 // 196_608),
        ([*DEEPSEEK, *VLLM, "tiers.cpu.semantics=vllm-offload"], 1, 100 * GIB // (70_272 * 64)),
        ([*DEEPSEEK, *VLLM, "tiers.cpu.semantics=lmcache", *CHUNKS], 1, 100 * GIB // (70_272 * 64)),
        ([*DEEPSEEK, *VLLM, *SERVER], 1, 100 * GIB // (70_272 * 64)),
        ([*DEEPSEEK, "cache.block_size=64", "tiers.cpu.capacity=100GiB"], 1, 100 * GIB // (562_176 * 64)),
        ([*DEEPSEEK, "replica.cp=8", "cache.block_size=64", "tiers.gpu.capacity=100GiB"], 0, 23_874),
    ],
)
def test_a_size_holds_the_copies_that_its_tier_stores(settings, tier, expected):
    assert blocks(*settings)[tier] == expected


def test_the_figures_of_the_engines():
    """SGLang's ``--hicache-size 20`` and vLLM's ``--kv-offloading-size 100`` at TP 8."""
    hicache = scenario(*QWEN, *SGLANG, "tiers.cpu.capacity=160GB")
    assert hicache.size_notes == (
        "tiers.cpu: 20GB a rank × 8 ranks (--hicache-size counts 10^9 bytes a rank); 2 copies of each token: "
        "813,802 tokens",
    )
    settings = [*QWEN, *VLLM, "cache.block_size=16", "tiers.cpu.semantics=vllm-offload"]
    assert blocks(*settings)[1] == 34_133
    assert "cpu 100GiB (546,128 tokens, 34,133 blocks)" in subject_line(scenario(*settings).resolved)
    groups = [*QWEN[1:], "model=gpt-oss-20b", "cache.semantics=vllm", "tiers.gpu.capacity=9GiB"]
    assert scenario(*groups).size_notes == ()
    llama = scenario("tiers.cpu.capacity=100GiB", "replica.step_time=roofline:llama-3.1-8b@h100:tp8")
    assert llama.size_notes == ()


@pytest.mark.parametrize(
    ("release", "copies"),
    [("", 1), ("vllm@0.27.1", 1), ("vllm@0.26.0", 8), ("vllm@0.9.0", 8), ("sglang@0.5.3.post1", 1)],
)
def test_vllm_stores_a_latent_once_from_a_release_on(release, copies):
    found = kv_copies(load_model("deepseek-v3"), 8, 1, "vllm-offload", release)
    assert (found.on_gpus, found.of_tier("cpu")) == (8, copies)


def test_heads_that_are_only_split_have_one_copy():
    for name in model_names():
        spec = load_model(name)
        heads = [getattr(each, "kv_heads", 0) for _, each in spec.attention_layers() if each.kind != "linear"]
        if min(heads, default=0) >= 4 and not any(
            getattr(e, "index_key_size", 0) for _, e in spec.attention_layers()
        ):
            whole = [tp for tp in (1, 2, 4) if not any(count % tp for count in heads)]
            assert {kv_copies(spec, tp, 1, None, "").on_gpus for tp in whole} == {1}, name
        found = kv_copies(spec, 16, 1, None, "")
        assert found.bytes_on_gpus(spec.kv_bytes_per_token) == 16 * spec.kv_bytes_per_token_per_gpu(16), name


CONNECTOR = """--kv-transfer-config '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'"""


@pytest.mark.parametrize(
    ("line", "gpu", "size"),
    [
        (
            "python -m sglang.launch_server --model Qwen/Qwen3-30B-A3B --tp 8 "
            "--enable-hierarchical-cache --hicache-size 20",
            "h100",
            "160GB",
        ),
        ("vllm serve Qwen/Qwen3-30B-A3B -tp 8 --kv-offloading-size 100", "h100", "100GiB"),
        (f"vllm serve Qwen/Qwen3-30B-A3B -tp 8 {CONNECTOR}", "h100", "40GiB"),
        (f"vllm serve deepseek-ai/DeepSeek-V3 -tp 8 {CONNECTOR}", "h200", "5GiB"),
    ],
)
def test_launch_lines_keep_the_size_of_each_rank(line, gpu, size):
    """LMCache has 5 GiB a rank by default; of a latent the first rank's alone."""
    assert f'capacity: "{size}"' in scenario_of_launch(line, gpu)


def run(tmp_path, *settings):
    rows = [
        {"timestamp": 30_000 * n, "input_length": 256, "output_length": 2, "hash_ids": [n % 3]}
        for n in range(9)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [word for one in settings for word in ("--set", one)]
    options = ["--set", "trace.block_size=256", "-o", str(tmp_path / "out"), "--quiet"]
    assert kvsim(["simulate", str(trace), *options, *words]) == 0
    return json.loads((tmp_path / "out" / "summary.json").read_text())


@pytest.mark.parametrize(
    ("settings", "stored_bytes"),
    [
        ([*QWEN, "write.policy=through"], 196_608),
        ([*DEEPSEEK, "write.policy=through"], 562_176),
        ([*DEEPSEEK, "cache.semantics=vllm", "tiers.cpu.semantics=vllm-offload"], 70_272),
        (
            [*DEEPSEEK, "cache.semantics=sglang", "tiers.cpu.semantics=hicache", "write.policy=through"],
            562_176,
        ),
    ],
)
def test_transfers_move_the_copies_that_are_stored(tmp_path, settings, stored_bytes):
    """Three prompts of 256 tokens in turn, in a GPU of two prompts: each is written, and read again."""
    tiers = ["cache.block_size=64", "tiers.gpu.capacity=9 blocks", "tiers.cpu.capacity=100 blocks"]
    tiers.append("replica.max_model_len=512")
    found = run(tmp_path, *settings, *tiers)["tiers"]["cpu"]
    assert found["written_bytes"] > 0
    assert found["read_bytes"] > 0
    assert found["written_bytes"] % (64 * stored_bytes) == 0
    assert found["written_bytes"] // (64 * stored_bytes) in range(12, 16)
    assert found["read_bytes"] % (64 * stored_bytes) == 0


def test_prices_are_those_of_the_stored_bytes():
    tiers = ["cache.block_size=64", "cache.semantics=vllm", "tiers.cpu.semantics=vllm-offload"]
    prices = ["cost.gpu_hour=1", "cost.dram_gib_month=730"]
    summary = {"tokens": {"input": 0, "output": 0}, "throughput": {"output_tokens_per_s": None}}
    for model, stored_bytes in ((QWEN, 196_608), (DEEPSEEK, 70_272)):
        found = cost_of(scenario(*model, *tiers, "tiers.cpu.capacity=1000 blocks", *prices), summary)
        assert found["per_hour"] == pytest.approx(8 + 1000 * 64 * stored_bytes / GIB)


def test_machines_of_other_degrees_have_copies_of_their_own():
    own = "machines[1].replica.step_time=roofline:qwen3-30b-a3b@h100:tp4"
    settings = [*QWEN, "cache.block_size=16", "tiers.cpu.capacity=100GiB", "cluster.machines=2", own]
    found = scenario(*settings).settings
    assert [one.tiers[1].capacity_blocks for one in found.machines] == [34_133, 68_266]
    assert [found.cache_of(one).block_bytes for one in range(2)] == [196_608 * 16, 98_304 * 16]
    with pytest.raises(
        UsageError, match=r"cluster\.pool has no effect; machines have blocks of several sizes"
    ):
        scenario(*settings, "cluster.pool.capacity=1TiB")


def test_a_capacity_in_tokens_is_the_whole_blocks_that_it_holds():
    sizes = ["tiers.gpu.capacity=1005629 tokens", "tiers.cpu.capacity=2_000_000 tokens"]
    pool = [
        "cluster.machines=2",
        "cluster.pool.capacity=99 tokens",
        "machines[1].tiers.cpu.capacity=47 tokens",
    ]
    found = scenario("cache.block_size=16", *sizes, *pool)
    held = [[tier.capacity_blocks for tier in one.tiers] for one in found.settings.machines]
    assert held == [[62_851, 125_000], [62_851, 2]]
    assert found.settings.pool.capacity_blocks == 6
    assert str(found.resolved["tiers"]["gpu"]["capacity"]) == "62851 blocks"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            ["cache.block_size=16", "tiers.cpu.capacity=15 tokens"],
            "below one block; got 15 tokens; expected at",
        ),
        (["tiers.cpu.capacity=0 tokens"], "zero capacity"),
        (["tiers.cpu.capacity=9999999999 tokens"], "capacity out of range"),
        (
            ["model=gpt-oss-20b", "cache.semantics=vllm", "tiers.gpu.capacity=99999 tokens"],
            "tiers.gpu.capacity: tokens do not say how many blocks the cache groups of gpt-oss-20b have",
        ),
    ],
)
def test_tokens_that_say_no_blocks_are_refused(settings, line):
    with pytest.raises(UsageError) as refusal:
        scenario(*settings)
    assert line in str(refusal.value)


def test_replays_take_tokens_wherever_they_take_sizes(tmp_path, capsys):
    rows = [{"timestamp": n, "input_length": 64, "output_length": 1, "hash_ids": [n % 3]} for n in range(9)]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["curve", str(trace), "--trace-block-size", "64", "--block-size", "16", "--format", "json"]
    assert kvsim([*words, "--capacity", "47 tokens", "--given", "160 tokens"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [point["capacity_blocks"] for point in found["points"]] == [2]
    groups = ["curve", str(trace), "--trace-block-size", "64", "--model", "gpt-oss-20b"]
    assert kvsim([*groups, "--capacity", "47 tokens"]) == 2
    assert "tokens do not say how many blocks cache groups have" in capsys.readouterr().err


def test_a_gpu_file_has_one_memory(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert kvsim(["gpus", "new", "mine", "--from", "h100"]) == 0
    text = (tmp_path / "mine.toml").read_text()
    assert "reported_memory_bytes = 85_018_877_624" in text
    assert "\nmemory_bytes =" not in text
    capacity = ["replica.step_time=roofline:llama-3.1-8b@mine.toml", "model=llama-3.1-8b"]
    packaged = ["replica.step_time=roofline:llama-3.1-8b@h100", "model=llama-3.1-8b"]
    own = scenario_from_text("workload: {kind: diverse, requests: 3}\n", "s", tmp_path, capacity)
    assert own.settings.machines[0].tiers[0].capacity_blocks == blocks(*packaged)[0]
    (tmp_path / "mine.toml").write_text(f"memory_bytes = 85_899_345_920\n{text}")
    assert kvsim(["gpus", "show", "mine.toml"]) == 2
    assert "mine.toml: memory_bytes has no effect; got 85899345920" in capsys.readouterr().err
