"""Eviction policies against invariants and frozen numbers of other systems; ``test_eviction_orders.py`` has
the models."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from eviction_orders import ORDERS, make_order
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import TraceError
from kvcache_sim.policies.resolve import parse_variant
from kvcache_sim.policies.table import EVICTION_POLICIES, NATIVE_KINDS, POLICIES
from kvcache_sim.replay.miss_causes import MISS_CAUSES
from kvcache_sim.replay.policy_misses import explained
from kvcache_sim.replay.prefix import prefix_answer
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from kvcache_sim.workload.readers.read import read_trace
from order_base import Block
from order_replay import Tier, leaf_first, path_of, replay
from policy_variants import VARIANTS
from support.examples import examples
from support.miss_causes import MissCauses
from support.product.machines import reported_by
from support.shared_files import shared
from support.small_traces import discriminating_stream, trace_of, tree_traces

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "rust" / "core" / "src" / "policies"


def run(request: ReplayRequest, variant: str, **changes):
    return REPLAYERS["prefix"](replace(request, **changes), variant)


# --- properties ------------------------------------------------------------------------------------------

replays = st.builds(
    ReplayRequest,
    trace=tree_traces(),
    block_size_tokens=st.sampled_from([1, 2, 4]),
    capacity_blocks=st.integers(1, 60),
    last_partial=st.sampled_from(["drop", "keep"]),
    explain=st.booleans(),
)


@examples(60)
@given(replays)
def test_root_first_lru_equals_a_plain_recency_list(request):
    """The stack of all blocks in recency order, its newest ``capacity`` resident; look-up stops at a gap."""
    prompts = blocks_of_prompts(request)
    stack, hits, seen, gone, ages = [], 0, set(), {}, []
    for i in range(len(request.trace)):
        start = int(request.trace.id_offsets[i])
        ids = request.trace.block_ids[start:].tolist()
        per = prompts.blocks_per_id
        path = [(ids[k // per], k % per) for k in range(int(prompts.blocks[i]))]
        path += [("private", i, k) for k in range(int(prompts.private_blocks[i]))]
        resident = set(stack[-request.capacity_blocks :])
        run_length = next((k for k, key in enumerate(path) if key not in resident), len(path))
        hits += min(run_length, int(prompts.limits[i]))
        missed = [key for key in path[: int(prompts.limits[i])] if key in seen and key not in resident]
        ages += [i - gone[key] for key in missed]
        stack = [key for key in stack if key not in set(path)] + path
        gone |= dict.fromkeys(set(stack[: -request.capacity_blocks]) & {*resident, *path}, i)
        seen.update(path)
    result = run(request, "lru", touch_from="root", explain=True)
    assert result["hit_blocks"] == hits
    reported = result["misses"].get("evicted_before_requests", {"p50": None, "max": None})
    ages.sort()
    assert (
        (reported["p50"], reported["max"]) == (ages[(len(ages) - 1) // 2], ages[-1]) if ages else (None, None)
    )


@examples(60)
@given(replays, st.sampled_from(VARIANTS))
def test_one_after_another_what_is_as_deep_as_the_cache_is_large_was_never_admitted(request, variant):
    """The record of evictions gives the same causes as the rule that needs no record."""
    request = replace(request, explain=True)
    prompts = blocks_of_prompts(request)
    hits = prefix_answer(request, prompts, parse_variant(variant, request.block_size_tokens)).hits
    assert run(request, variant)["requests"] == explained(request, prompts, variant, hits)["requests"]


@examples(60)
@given(replays, st.sampled_from(VARIANTS))
def test_causes_are_those_of_the_model_block_by_block(request, variant):
    request = replace(request, explain=True, last_partial="drop")
    prompts, size = blocks_of_prompts(request), request.block_size_tokens
    policy = parse_variant(variant, size)
    capacity = min(request.capacity_blocks, max(1, prompts.references))
    tier = Tier(make_order(policy, capacity), capacity)
    causes = MissCauses(size, evicted_by=tier.evicted_by)
    now_ns = 0
    for i, (tokens, limit) in enumerate(
        zip(prompts.trace.input_tokens, prompts.limits.tolist(), strict=True)
    ):
        tier.request, tier.held, path = i, set(), path_of(prompts, i)
        now_ns = max(now_ns, int(prompts.trace.arrival_ns[i]))
        for block in tier.policy.expire(now_ns):
            tier.remove(block)
        found = next((k for k, key in enumerate(path) if key not in tier.blocks), len(path))
        causes.count(int(tokens), path[:limit], min(found, limit), lambda key: False)
        causes.learn(path)
        tier.held = set(path)
        new = [Block(key, k, 1, 0, 0, now_ns, found, len(path) - found) for k, key in enumerate(path)]
        leaf_first(tier, new, found, i + 1)
    native = run(request, variant)["requests"]
    for cause in reported_by("replay"):
        column = [row[MISS_CAUSES.index(cause)] for row in causes.tokens]
        assert native[f"{cause.name}_tokens"] == column, cause.name


@examples(100)
@given(replays, st.sampled_from(VARIANTS))
def test_no_policy_exceeds_its_ceilings(request, variant):
    result = run(request, variant)
    tops = result["upper_bounds"]
    assert result["hit_blocks"] <= tops["belady"]["hit_blocks"] <= tops["unbounded"]["hit_blocks"]
    assert result["resident_blocks"] <= request.capacity_blocks


@examples(80)
@given(replays, st.sampled_from([*VARIANTS, "belady", "unbounded"]))
def test_every_missed_token_has_one_cause(request, variant):
    result = run(request, variant, explain=True)
    rows = result["requests"]
    causes = [
        name for name in rows if name.endswith("_tokens") and name not in ("input_tokens", "hit_tokens")
    ]
    for i, tokens in enumerate(rows["input_tokens"]):
        parts = [rows[name][i] for name in causes]
        assert min(parts) >= 0
        assert sum(parts) == tokens - rows["hit_tokens"][i]
    assert result["misses"]["missed_tokens"] == result["queried_tokens"] - result["hit_tokens"]


# --- by hand ---------------------------------------------------------------------------------------------


def test_why_a_prompt_missed():
    """a b is new; a c and a d part after a, where b continued; the second b has been evicted."""
    rows = [["a", "b"], ["a", "c"], ["a", "d"], ["a", "b"]]
    trace = trace_of(rows, arrival_ns=[0, 10, 20, 30])
    result = run(ReplayRequest(trace, 4, 2, last_partial="keep", explain=True), "lru")
    rows = result["requests"]
    assert rows["never_seen_tokens"] == [8, 0, 0, 0]
    assert rows["diverged_tokens"] == [0, 4, 4, 0]
    assert rows["evicted_tokens"] == [0, 0, 0, 4]
    misses = result["misses"]  # a c evicted b, two requests before the second a b
    assert (misses["evicted_by"], misses["evicted_before_requests"]["max"]) == ("lru", 2)
    assert misses["evicted_before_ns"]["max"] == 20


def test_an_id_twice_in_a_prompt_is_a_trace_error():
    with pytest.raises(TraceError, match="names id 0 twice"):
        run(ReplayRequest(trace_of([["a", "b", "a"]]), 4, 3), "lru")


def test_every_row_runs_and_names_its_paper():
    request = ReplayRequest(trace_of([["a"], ["a"]]), 4, 3, last_partial="keep")
    for row in POLICIES:
        assert row.paper
        assert row.description
        if row.family == "prefix":
            assert run(request, row.example)["hit_blocks"] == 1


def test_every_policy_of_the_table_has_a_file_and_a_model():
    rows = {row.module for row in EVICTION_POLICIES}
    native = {path.stem for path in NATIVE.glob("*.rs") if "\npub const POLICY:" in path.read_text()}
    assert rows == native == set(ORDERS)
    assert {row.name for row in EVICTION_POLICIES} == NATIVE_KINDS.keys()


# --- frozen numbers --------------------------------------------------------------------------------------

LIBCACHESIM = {
    "LRU": "lru",
    "FIFO": "fifo",
    "LFU": "lfu",
    "ARC": "arc",
    "S3FIFO-0.1000-2": "s3fifo",
    "Sieve": "sieve",
    "Clock": "clock",
    "Belady": "belady",
    "TwoQ": "twoq",
    "S4LRU(25:25:25:25)": "s4lru",
    "LIRS": "lirs",
    "WTinyLFU-w0.01-SLRU": "wtinylfu",
}


@cache
def stream_cut(name):
    stream = discriminating_stream(name)
    numbered = np.array(list(dict.fromkeys(stream)), np.int64)  # its own ids, which wtinylfu hashes
    trace = replace(trace_of([[x] for x in stream]), id_names=numbered)
    return blocks_of_prompts(ReplayRequest(trace, 4, 1, last_partial="keep"))


#: Accesses of a small plain cache and which of them hit (../shared/policies.md, section 11).
WORKED = [
    ("twoq", 4, [1, 2, 3, 4, 5, 1, 5, 2, 1], "000000101"),
    ("twoq", 8, [*range(1, 10), 1, 2, 1, 3, 9, 2], "000000000001011"),
    ("s4lru", 4, [1, 2, 3, 4, 1, 5, 2, 2, 6, 1], "0000100100"),
    ("s4lru", 8, [*range(1, 9), 1, 1, 9, 2, 3], "0000000011000"),
    ("lirs", 3, [1, 2, 3, 4, 3, 1, 3, 2, 5, 2], "0000011101"),
    ("lirs", 4, [1, 2, 3, 4, 5, 4, 1, 4, 6, 2, 5], "00000011010"),
    (
        "wtinylfu",
        100,
        [*range(1, 100), 1, 1, 1, 100, 101, 102, 101, 103, 101, 102, 1, 100, 2],
        "0" * 99 + "1110000010100",
    ),
]


@pytest.mark.parametrize(("policy", "capacity", "accesses", "hits"), WORKED)
def test_worked_examples_of_plain_caches(policy, capacity, accesses, hits):
    """A block an id, a request an access; the fewest requests that show a hit each."""
    for length in range(1, len(accesses) + 1):
        trace = trace_of([[x] for x in accesses[:length]])
        request = ReplayRequest(trace, 4, capacity, last_partial="keep", discipline="flat")
        expected = hits[:length].count("1")
        assert run(request, policy)["hits"] == expected, length
        model = replay(blocks_of_prompts(request), parse_variant(policy, 4), capacity, "tail")
        assert model.hits.sum() == expected, length


def test_flat_policies_equal_every_row_on_the_streams():
    for row in json.loads(shared("oracles/libcachesim_discriminating.json").read_text()):
        if row["policy"] in LIBCACHESIM:
            request = ReplayRequest(
                stream_cut(row["stream"]).trace,
                4,
                row["capacity_objects"],
                last_partial="keep",
                discipline="flat",
            )
            assert run(request, LIBCACHESIM[row["policy"]])["hits"] == row["hits"], row


@cache
def conversation():
    return read_trace(shared("traces/conversation_trace.jsonl"))


@pytest.mark.parametrize("size", [512, 16])
def test_flat_policies_equal_every_row_on_the_trace(size):
    for row in json.loads(shared("oracles/libcachesim_traces.json").read_text()):
        policy = LIBCACHESIM.get(row["policy"])
        if row["block_size"] != size or policy is None:
            continue
        if size == 16 and row["capacity_objects"] != 524_288:
            continue  # seconds a row: the others are left to a full check by hand
        request = ReplayRequest(
            conversation(),
            size,
            row["capacity_objects"],
            last_partial="keep" if size == 512 else "drop",
            discipline="flat",
            touch_from="tail" if row["order"] == "rev" else "root",
        )
        native = blocks_of_prompts(request).native
        if policy == "belady":
            hits = native.belady_flat(request.capacity_blocks, request.touch_from).hits.sum()
        else:
            settings = parse_variant(policy, size).native
            hits = native.plain(policy, request.capacity_blocks, request.touch_from, settings).hits.sum()
        assert hits == row["hits"], row


#: Block hit rates of two traces by policy and order, at these capacities (../shared/policies.md).
CONVERSATION_BLOCKS = (1_000, 10_000, 30_000, 50_000, 100_000)
CONVERSATION = {
    ("lru", "tail"): (0.0445, 0.2116, 0.3257, 0.3546, 0.3637),
    ("lru", "root"): (0.0445, 0.2112, 0.3257, 0.3546, 0.3637),
    ("lfu", "tail"): (0.0481, 0.1317, 0.2760, 0.3439, 0.3631),
    ("belady", "tail"): (0.1907, 0.3664, 0.3664, 0.3664, 0.3664),
}
AGENTIC = {
    ("lru", "tail"): (0.3769, 0.8543, 0.9619),
    ("lru", "root"): (0.3005, 0.8325, 0.9619),
    ("lfu", "tail"): (0.2765, 0.3382, 0.3748),
    ("belady", "tail"): (0.6371, 0.9147, 0.9619),
}


def rates(request, policy, order, sizes):
    """Return the rounded block hit rates at some capacities."""
    results = [run(replace(request, touch_from=order), policy, capacity_blocks=size) for size in sizes]
    return tuple(round(result["block_hit_rate"], 4) for result in results)


@pytest.mark.parametrize(("policy", "order"), CONVERSATION)
def test_the_table_of_the_conversation_trace(policy, order):
    request = ReplayRequest(conversation(), 512, 1, last_partial="keep")
    assert rates(request, policy, order, CONVERSATION_BLOCKS) == CONVERSATION[policy, order]


def test_lru_counts_of_the_conversation_trace():
    request = ReplayRequest(conversation(), 512, 1, last_partial="keep")
    for capacity, *expected in (
        (1_000, 12_847, 274_653),
        (10_000, 61_046, 217_454),
        (100_000, 104_924, 83_576),
    ):
        result = run(request, "lru", capacity_blocks=capacity)
        assert [result["hit_blocks"], result["evictions"]] == expected
        assert result["upper_bounds"]["unbounded"]["hit_blocks"] == 105_710
        split = run(request, "lru", block_size_tokens=16, capacity_blocks=32 * capacity)
        assert split["hit_blocks"] == 32 * expected[0]


def test_the_table_of_the_agentic_trace():
    trace = read_trace(shared("traces/weka_composite_dev_K16_b512.jsonl.gz"))
    request = ReplayRequest(trace, 512, 1, last_partial="keep")
    for (policy, order), expected in AGENTIC.items():
        assert rates(request, policy, order, (1_000, 3_000, 10_000)) == expected, (policy, order)
    native, references = blocks_of_prompts(request).native, 6_305_306
    assert round(native.belady(2**63).hits.sum() / references, 6) == 0.961949
    settings = parse_variant("fifo", 512).native
    for capacity, rate in ((1_000, 0.2739), (3_000, 0.7309), (10_000, 0.9303)):
        hits = native.plain("fifo", capacity, "queue", settings).hits.sum()
        assert round(hits / references, 4) == rate


def test_the_flat_queue_of_the_conversation_trace():
    request = ReplayRequest(conversation(), 512, 1, last_partial="keep", discipline="flat")
    for capacity, rate in ((1_000, 0.0445), (10_000, 0.1814), (30_000, 0.2934), (100_000, 0.3563)):
        result = run(request, "fifo", capacity_blocks=capacity)
        assert round(result["prefix_lookup"]["block_hit_rate"], 4) == rate
