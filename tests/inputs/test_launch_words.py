"""Launch lines word by word: what a scenario's line says and leaves out, and how a line's words belong
together."""

import kvcache_sim as kv
import pytest
from kvcache_sim.scenario.launch.drafts import drafts_of, flags_of_drafts
from kvcache_sim.scenario.launch.line import parse_launch
from kvcache_sim.scenario.launch.to_line import Launch, launch_of_scenario

FREE_BLOCKS = {"tiers.gpu.capacity": "4000 blocks"}
VLLM = (
    "vllm serve llama-3.1-8b{} --block-size 512 --max-num-seqs 256 --max-num-batched-tokens 8192 --max-model-len 131072 "
    "--gpu-memory-utilization 0.9 --seed 0 --num-gpu-blocks-override 4000"
)
SGLANG = (
    "python -m sglang.launch_server --model-path llama-3.1-8b{} --page-size 512 --max-running-requests 256 "
    "--chunked-prefill-size 8192 --context-length 131072 --mem-fraction-static 0.9 --random-seed 0{} --max-total-tokens 2048000{} "
    "--radix-eviction-policy lru{}"
)


def launch(engine: str, **settings) -> Launch:
    scenario = kv.Scenario.from_yaml("").with_(**FREE_BLOCKS, **settings)
    return launch_of_scenario(scenario.checked.resolved, engine)


def test_a_line_says_what_the_engine_would_not_do_by_itself():
    assert launch("vllm") == (VLLM.format(""), ())
    assert launch("sglang") == (SGLANG.format("", "", "", ""), ())
    own = launch("vllm", **{"replica.scheduler": "vllm", "cache.semantics": "vllm"})
    assert own == (VLLM.format(""), ())  # no threshold of long prefills
    own = launch("sglang", **{"replica.scheduler": "sglang", "cache.semantics": "sglang"})
    # first come first served, no mixed chunks, a conservativeness of 1: all as the engine has them
    expected = SGLANG.format("", "", " --disable-overlap-schedule", " --max-prefill-tokens 16384")
    assert own == (expected, ())


def test_a_tier_below_and_how_it_is_written():
    cpu = {"tiers.cpu.capacity": "64GB"}
    assert (
        launch("vllm", **{"tiers.cpu.capacity": "64GiB"}).line == f"{VLLM.format('')} --kv-offloading-size 64"
    )
    for policy, word in (("back", "write_back"), ("through", "write_through")):
        line = launch("sglang", **cpu, **{"write.policy": policy}).line
        said = f" --hicache-write-policy {word}"
        assert line == SGLANG.format("", " --hicache-size 64", " --enable-hierarchical-cache", said)


def test_a_balancer_of_the_engines_own_needs_no_flag():
    own = launch("vllm", **{"cluster.machines": 3, "router.policy": "vllm-dp"})
    assert own == (VLLM.format(" --data-parallel-size 3"), ())


def test_another_router_has_no_flag():
    fleet = {"cluster.machines": 3, "router.policy": "least-loaded"}
    assert launch("vllm", **fleet) == (VLLM.format(" --data-parallel-size 3"), ("router.policy",))
    line = SGLANG.format(" --dp-size 3", "", "", "")
    assert launch("sglang", **fleet) == (line, ("router.policy",))
    assert launch("sglang", **{"cluster.machines": 3}) == (line, ())


def test_settings_of_the_engine_that_no_flag_says_are_named():
    moved = {
        "tiers.cpu.capacity": "64GiB",
        "write.policy": "through",
        "fetch.policy": "cheaper",
        "cluster.machines": 2,
        "pools.prefill": 1,
        "pools.decode": 1,
        "handover.transfer": "layer-by-layer",
    }
    expected = {"write.policy", "fetch.policy", "pools.prefill", "pools.decode", "handover.transfer"}
    assert set(launch("vllm", **moved).without_flag) == expected
    # requests, hardware and prices are no part of how an engine is started
    assert launch("vllm", **{"cost.gpu_hour": 3.0, "name": "other"}).without_flag == ()


@pytest.mark.parametrize(
    ("line", "model", "flags"),
    [
        # a name with underscores is one of the engine's short names too
        (
            "python -m sglang.launch_server --model-path Q --tensor_parallel_size 4 --foo -1",
            "Q",
            {"--tp-size": "4", "--foo": "-1"},
        ),
        # a flag takes several words once the model is known, one before
        ("vllm serve --served-model-name a Q -tp 2", "Q", {"--served-model-name": "a", "--tensor-parallel-size": "2"}),
        ("vllm serve Q --served-model-name a b", "Q", {"--served-model-name": "a b"}),
        # a number below zero is a value
        ("vllm serve Q --max-model-len -1 --seed -2.5", "Q", {"--max-model-len": "-1", "--seed": "-2.5"}),
        ("vllm serve Q --enforce-eager --seed=3", "Q", {"--enforce-eager": "", "--seed": "3"}),
    ],
)  # fmt: skip
def test_words_that_belong_together(line, model, flags):
    parsed = parse_launch(line)
    assert (parsed.model, parsed.flags) == (model, flags)


def test_all_layers_keep_every_block_where_a_token_weighs_what_all_of_them_keep():
    """gpt-oss-120b: 36 layers of 8 heads of 64 values, keys and values in 2 bytes."""
    flag, full = "--disable-hybrid-kv-cache-manager", 36 * 8 * 64 * 2 * 2
    own = {"replica.step_time": "roofline:gpt-oss-120b@h100:tp2", "cache.layer_groups": "as-full"}
    for each, said in ((full, True), (full // 2, False)):
        sizes = {"cache.kv_bytes_per_token": f"{each}B", "tiers.cpu.capacity": "64GiB"}
        line, without = launch("vllm", **own, **sizes)
        assert (flag in line.split(), "cache.layer_groups" in without) == (said, not said)


@pytest.mark.parametrize(
    ("said", "tokens", "eagle", "words"),
    [
        # a chain of n drafts is checked with the token before it
        (["NGRAM", "", "5"], 4, False, ["NGRAM", "", "5"]),
        (["EAGLE3", "3", ""], 3, True, ["EAGLE", "3", "4"]),
        (["NEXTN", "1", "2"], 1, True, ["EAGLE", "1", "2"]),
        (["NGRAM", "", "1"], 1, False, ["NGRAM", "", "2"]),
    ],
)
def test_drafts_of_sglang_there_and_back(said, tokens, eagle, words):
    names = ["--speculative-algorithm", "--speculative-num-steps", "--speculative-num-draft-tokens"]
    flags = {name: value for name, value in zip(names, said, strict=True) if value}
    drafts, _ = drafts_of(flags)
    assert flags == {}
    # each draft is taken to be accepted with probability 0.7 where the one before it was
    expected = {"tokens": tokens, "acceptance": [0.7, 0.49, 0.343, 0.2401][:tokens]}
    assert drafts == {**expected, **({"eagle": True} if eagle else {})}
    back = [word for pair in zip(names, words, strict=True) for word in pair if pair[1]]
    assert flags_of_drafts("sglang", drafts) == back
