"""Settings of replays that mean nothing, and columns that do not fit together, are refused."""

import numpy as np
import pytest
from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.policies.resolve import parse_variant
from kvcache_sim.replay.cachesim import simulate_cache
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import ReplayRequest, StorageCapacity
from support.small_traces import trace_of

LRU, ARC = (parse_variant(name, 4).native for name in ("lru", "arc"))
FLAT, FROM_THE_ROOT = {"discipline": "flat"}, {"touch_from": "root"}


@pytest.mark.parametrize(
    ("policy", "changes", "word"),
    [
        ("lru", {"block_size_tokens": 3}, "--block-size"),
        ("lru", {"capacity_blocks": 0}, "--capacity"),
        ("lru", {"host_blocks": 1}, "--host-capacity"),
        ("lru", {"write_policy": "write_back"}, "--write-policy"),
        ("lru", {"storage": StorageCapacity(None)}, "--storage"),
        ("lru", {"disk_blocks": 1}, "--disk-chunks"),
        ("lru", {"cpu_blocks": 1}, "--cpu-chunks"),
        ("lru", {"secondary": True}, "--secondary-tier"),
        ("fifo", {"store_threshold": 1}, "--store-threshold"),
        ("belady", {"window": 4}, "--window"),
        ("unbounded", {"window": 4}, "--window"),
        ("belady", {"window": 4} | FLAT, "--window"),
        ("lru", {"window": 4} | FROM_THE_ROOT, "--window"),
        ("lfu", FROM_THE_ROOT, "--order"),
        ("fifo", {"window": 1} | FROM_THE_ROOT, "--order"),
        ("unbounded", FLAT, "--flat"),
        ("lru", {"last_partial": "keep", "outputs": "all"}, "--outputs"),
        ("lru:5", {}, "no setting"),
        ("ttl:5", {}, "unit"),
        ("ttl:-1s", {}, "--policy"),
        ("pgdsf:many", {}, "--policy"),
        ("priority", {}, "--policy"),
        ("nosuch", {}, "unknown policy"),
        ("sglang-unified:tlru:2147483647", {}, "--policy"),
        ("sglang-unified:tlru:1:2147483647", {}, "--policy"),
        ("sglang-unified:tlru:5:6:7", {}, "--policy"),
        ("sglang-unified:lru:5", {}, "policy"),
        ("sglang-unified:tlru:-1", {}, "policy"),
        ("sglang-unified:tlru:5:", {}, "policy"),
    ],
)
def test_settings_without_meaning_are_refused(policy, changes, word):
    request = {"trace": trace_of([["a"]]), "block_size_tokens": 4, "capacity_blocks": 3}
    with pytest.raises(UsageError, match=word):
        simulate_cache(ReplayRequest(**request | changes), policy)


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        ("lru", {"window": 1} | FROM_THE_ROOT | FLAT),
        ("fifo", FROM_THE_ROOT | FLAT),
        ("lru", FROM_THE_ROOT | {"explain": True}),
        ("unbounded", {}),
        ("sglang-unified:tlru", {}),
        ("sglang-unified:tlru:5", {}),
        ("sglang-unified:tlru:0:2147483646", {}),
    ],
)
def test_settings_with_a_meaning_are_taken(policy, changes):
    request = ReplayRequest(trace_of([["a"], ["a"]], input_tokens=[5, 5]), 4, 3, **changes)
    assert simulate_cache(request, policy)["hit_tokens" if changes == {} else "queried_blocks"] > 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: p.recency(0, "tail"), "capacity: got 0"),
        (lambda p: p.recency(1, "head"), "unknown end of a prompt"),
        (lambda p: p.leaf_first("nosuch", 1, LRU), "unknown policy"),
        (lambda p: p.plain("arc", 0, "queue", ARC), "capacity: got 0"),
        (lambda p: p.plain("arc", 1, "leaf-first", ARC), "unknown end of a prompt"),
        (lambda p: p.leaf_first("arc", 1, ARC, 0, np.zeros(9, np.uint32)), "one count a"),
        (lambda p: p.belady(0), "capacity: got 0"),
        (lambda p: p.reuses(np.zeros(9, np.uint32), "tail"), "one limit a request"),
        (lambda p: _core.ReplayPolicySettings(-1, 1.0, []), "ttl_ns: got -1"),
        (lambda p: _core.ReplayPolicySettings(1, float("nan"), []), "attention_blocks: got NaN"),
        (lambda p: _core.ReplayPolicySettings(1, 1.0, [(4, 4, 9, None)]), "range: got 4-4"),
        (lambda p: _core.ReplayPolicySettings(1, 1.0, [(0, 4, 101, None)]), "priority: got 101"),
        (lambda p: _core.ReplayPolicySettings(1, 1.0, [(0, 4, 9, -1)]), "duration_ns: got -1"),
    ],
)
def test_a_number_that_means_nothing_is_a_value_error_of_the_core(call, words):
    with pytest.raises(ValueError, match=words):
        call(blocks_of_prompts(ReplayRequest(trace_of([["a"], ["a"]]), 4, 3)).native)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ids": [0, 2**32 - 1]}, "ids"),
        ({"offsets": [0, -(2**63), 2]}, "do not fit together"),
        ({"offsets": [0]}, "do not fit together"),
        ({"offsets": []}, "do not fit together"),
        ({"offsets": [0, 5, 2]}, "do not fit together"),
        ({"offsets": [1, 1, 2]}, "do not fit together"),
        ({"private": [0]}, "do not fit together"),
        ({"blocks": [1, 9]}, "do not fit together"),
        ({"private": [0, 2**32 - 1]}, "more than 2\\^32 blocks"),
        ({"per": 0}, "do not fit together"),
        ({"arrival": [0]}, "do not fit together"),
    ],
)
def test_prompts_that_do_not_fit_together_are_a_value_error_of_the_core(changes, words):
    given = {
        "ids": [0, 1],
        "offsets": [0, 1, 2],
        "per": 1,
        "blocks": [1, 1],
        "private": [0, 0],
        "arrival": [0, 0],
    }
    given |= changes
    with pytest.raises(ValueError, match=words):
        _core.ReplayPrompts(
            np.array(given["ids"], np.uint32),
            np.array(given["offsets"], np.int64),
            given["per"],
            np.array(given["blocks"], np.uint32),
            np.array(given["private"], np.uint32),
            np.array(given["arrival"], np.int64),
        )
