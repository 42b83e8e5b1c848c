"""Eviction policies under overlapping requests: held blocks stay, and blocks that do not fit are not
admitted.

``test_eviction_orders.py`` compares such replays with the models.
"""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli import main
from kvcache_sim.policies.resolve import parse_variant
from kvcache_sim.replay.prefix import prefix_answer
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from policy_variants import VARIANTS
from support.examples import examples
from support.small_traces import trace_of, tree_traces

replays = st.builds(
    ReplayRequest,
    trace=tree_traces(),
    block_size_tokens=st.sampled_from([1, 2, 4]),
    capacity_blocks=st.integers(1, 60),
    window=st.integers(1, 9),
    last_partial=st.sampled_from(["drop", "keep"]),
    explain=st.booleans(),
)


def run(request: ReplayRequest, variant: str, **changes):
    return REPLAYERS["prefix"](replace(request, **changes), variant)


def without(result, *names):
    return {k: v for k, v in result.items() if k not in names}


def hits_of(request: ReplayRequest, variant: str):
    """Return the blocks that each request found."""
    policy = parse_variant(variant, request.block_size_tokens)
    return prefix_answer(request, blocks_of_prompts(request), policy).hits.tolist()


def in_common(a, b) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


# --- properties ------------------------------------------------------------------------------------------


@examples(60)
@given(replays, st.sampled_from(VARIANTS))
def test_a_window_of_one_is_one_after_another(request, variant):
    reported = ("window", "not_admitted_blocks", "misses", "requests")
    alone = without(run(request, variant, window=0), *reported)
    assert without(run(request, variant, window=1), *reported) == alone


@examples(40)
@given(replays, st.sampled_from([v for v in VARIANTS if not v.startswith("ttl")]))
def test_a_window_does_not_matter_in_an_unbounded_pool(request, variant):
    roomy = replace(request, capacity_blocks=10**6)
    reported = ("window", "not_admitted_blocks")
    result = run(roomy, variant)
    assert result["not_admitted_blocks"] == 0
    assert without(result, *reported) == without(run(roomy, variant, window=0), *reported)


@examples(150)
@given(replays, st.sampled_from(VARIANTS), st.integers(20, 120))
def test_what_a_request_in_flight_holds_is_found(request, variant, capacity):
    request = replace(request, capacity_blocks=capacity)
    if run(request, variant)["not_admitted_blocks"]:
        return
    paths, hits = list(blocks_of_prompts(request).numbered_paths()), hits_of(request, variant)
    for i, path in enumerate(paths):
        for j in range(max(0, i - request.window + 1), i):
            assert hits[i] >= in_common(path, paths[j])


@examples(60)
@given(replays, st.sampled_from(VARIANTS))
def test_no_policy_exceeds_its_ceiling(request, variant):
    result = run(request, variant)
    assert result["hit_blocks"] <= result["upper_bounds"]["belady"]["hit_blocks"]
    assert result["not_admitted_blocks"] >= 0
    assert result["resident_blocks"] <= request.capacity_blocks


# --- narrated --------------------------------------------------------------------------------------------

THREE = [["a", "b"], ["c", "d"], ["a", "b"]]


@pytest.mark.parametrize("variant", [v for v in VARIANTS if "7ns" not in v])
@pytest.mark.parametrize("discipline", ["prefix", "flat"])
def test_a_held_block_is_no_victim(variant, discipline):
    """Two blocks: a b are held when c d come, so c d are not admitted, and a b are found again."""
    request = ReplayRequest(trace_of(THREE), 4, 2, last_partial="keep", discipline=discipline)
    overlapping, alone = run(request, variant, window=2), run(request, variant)
    name = "hits" if discipline == "flat" else "hit_blocks"
    assert (overlapping[name], overlapping["evictions"], overlapping["not_admitted_blocks"]) == (2, 0, 2)
    assert alone["evictions"] > 0


def test_the_head_of_a_prompt_takes_the_free_blocks():
    """Three blocks: c fits in addition to a b, d does not."""
    trace = trace_of([["a", "b"], ["c", "d"], ["c", "d"]])
    request = ReplayRequest(trace, 4, 3, window=3, last_partial="keep")
    assert hits_of(request, "lru") == [0, 0, 1]
    assert run(request, "lru")["not_admitted_blocks"] == 2


def test_why_overlapping_requests_missed():
    """c d do not fit while a b are held; at 20 they evict a b, and 30 after that a b miss."""
    rows = [["a", "b"], ["c", "d"], ["c", "d"], ["c", "d"], ["a", "b"]]
    trace = trace_of(rows, arrival_ns=[0, 10, 20, 30, 50])
    request = ReplayRequest(trace, 4, 2, window=2, last_partial="keep", explain=True)
    result = run(request, "fifo")
    assert result["requests"]["never_seen_tokens"] == [8, 8, 0, 0, 0]
    assert result["requests"]["not_admitted_tokens"] == [0, 0, 8, 0, 0]
    assert result["requests"]["evicted_tokens"] == [0, 0, 0, 0, 8]
    assert result["misses"]["evicted_before_requests"]["max"] == 2
    assert result["misses"]["evicted_before_ns"]["max"] == 30


def test_a_held_block_outlives_its_time():
    """a lapses at 10 while its request runs; it leaves when that has ended."""
    rows, arrivals = [["a"], ["b"], ["a"], ["c"], ["d"], ["a"]], [0, 5, 12, 13, 14, 40]
    trace = trace_of(rows, arrival_ns=arrivals)
    request = ReplayRequest(trace, 4, 9, last_partial="keep")
    assert hits_of(request, "ttl:10ns") == [0, 0, 0, 0, 0, 0]
    assert hits_of(replace(request, window=3), "ttl:10ns") == [0, 0, 1, 0, 0, 0]


# --- command line ----------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path):
    path = tmp_path / "three.jsonl"
    rows = [
        {"timestamp": i, "input_length": 17, "output_length": 1, "hash_ids": [7 * k, 7 * k + 1, 7 * k + 2]}
        for i, k in enumerate([1, 2, 1, 2])
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def figures(capsys, *argv) -> dict:
    code = main.run(["cachesim", *map(str, argv), "--trace-block-size", "8", "--format", "json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


@pytest.mark.parametrize("policy", ["lru", "lfu", "arc", "sieve"])
def test_window_through_the_command_line(capsys, three, policy):
    ask = (three, "--policy", policy, "--capacity", 2)
    alone, overlapping = figures(capsys, *ask), figures(capsys, *ask, "--window", 2)
    assert "window" not in alone
    assert alone["hit_tokens"] == 0
    assert (overlapping["window"], overlapping["hit_tokens"], overlapping["not_admitted_blocks"]) == (
        2,
        16,
        4,
    )
    flat = figures(capsys, *ask, "--window", 2, "--flat")
    assert flat["not_admitted_blocks"] > 0
    huge = figures(capsys, *ask, "--window", 2**40)
    assert without(huge, "window") == without(figures(capsys, *ask, "--window", 4), "window")


def test_a_plugin_under_overlapping_requests(capsys, three, tmp_path):
    plugin = tmp_path / "oldest.py"
    plugin.write_text("def oldest(b, now):\n    return b.last_use\n")
    ask = (three, "--policy", f"{plugin}:oldest", "--capacity", 2)
    assert figures(capsys, *ask)["hit_tokens"] == 0
    overlapping = figures(capsys, *ask, "--window", 2)
    assert (overlapping["hit_tokens"], overlapping["not_admitted_blocks"]) == (16, 4)


def test_where_a_window_has_no_meaning(capsys, three):
    for policy in ("belady", "unbounded", "vllm-offload:lru"):
        argv = ["cachesim", str(three), "--policy", policy, "--capacity", "2", "--window", "2"]
        assert main.run([*argv, "--trace-block-size", "8"]) == 2
        assert capsys.readouterr().err.count("\n") == 1
