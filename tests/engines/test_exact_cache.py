"""Engines' caches: every oracle row to the integer, small models and invariants on random workloads."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from call_outcome import each_is_refused
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.cachesim import simulate_cache
from kvcache_sim.replay.engine_requests import block_keys
from kvcache_sim.replay.request import REJECTED, REPLAYERS, ReplayRequest
from kvcache_sim.workload.readers import read_trace
from replays import check_causes, workloads
from support.exact_rows import OUTPUTS, PROVENANCE, rows_of
from support.examples import examples
from support.shared_files import shared
from support.small_traces import trace_of

SGLANG = ("lru", "lfu", "fifo", "mru", "filo", "slru", "hpt")


@cache
def conversation():
    return read_trace(shared("traces/conversation_trace.jsonl"))


def request_of(row: dict) -> ReplayRequest:
    block = row.get("block_size") or row["page_size"]
    capacity = row.get("capacity_blocks") or row.get("capacity_chunks") or row["capacity_tokens"] // block
    return ReplayRequest(
        conversation(),
        block,
        capacity,
        window=row.get("window", 0),
        outputs=OUTPUTS[row.get("output_mode", "P")],
        store_threshold=row.get("store_threshold", 0),
    )


@pytest.mark.parametrize(("family", "count"), [("vllm", 60), ("sglang", 29), ("vllm-offload", 12)])
def test_every_oracle_row(family, count):
    rows = rows_of(family)
    assert len(rows) == count
    wrong = []
    for row in rows:
        got = REPLAYERS[family](request_of(row), row.get("policy", ""))
        wrong += [
            (name, got.get(name), value)
            for name, value in row.items()
            if name not in PROVENANCE and got.get(name) != value
        ]
    assert not wrong


# random workloads


def replayed(request: ReplayRequest, family: str, variant: str) -> dict:
    """Return the core's figures; every missed token has one cause."""
    core = REPLAYERS[family](request, variant)
    misses = core["misses"]
    rejected = core.get("rejected_prompt_tokens", 0)
    assert misses["missed_tokens"] == core["queried_tokens"] - rejected - core["hit_tokens"]
    assert misses["missed_tokens"] == sum(v for k, v in misses.items() if k.endswith("_tokens")) / 2
    return core


@given(
    workloads(in_sessions=True),
    st.sampled_from(["vllm", *(f"sglang:{policy}" for policy in SGLANG)]),
    st.sampled_from(list(OUTPUTS.values())),
    st.booleans(),
)
@examples(300)
def test_an_engine_accounts_for_all_its_tokens(request, policy, outputs, reuse):
    request = replace(request, outputs=outputs, reuse_outputs=reuse and outputs != "prompt")
    family, _, variant = policy.partition(":")
    core = replayed(request, family, variant)
    check_causes(request, core)
    if family == "sglang":
        assert core["final_tree_tokens"] + core["final_free_tokens"] == core["capacity_tokens"]
    else:
        assert core["cached_blocks_at_end"] == core["hashed_blocks_inserted"] - core["evictions"]
        assert core["rejected_requests"] == core["requests"]["hit_tokens"].count(REJECTED)


@given(workloads(in_sessions=True), st.sampled_from(["lru", "arc"]), st.integers(0, 3))
@examples(150)
def test_offload_accounts_for_all_its_tokens(request, policy, threshold):
    request = replace(request, window=0, store_threshold=threshold)
    check_causes(request, replayed(request, "vllm-offload", policy))


@given(
    workloads(in_sessions=True),
    st.sampled_from(["vllm", *(f"sglang:{p}" for p in SGLANG), "vllm-offload:lru", "vllm-offload:arc"]),
)
@examples(100)
def test_with_capacity_for_all_blocks_every_engine_is_the_unbounded_cache(request, policy):
    got = simulate_cache(replace(request, window=0, capacity_blocks=10**6), policy)
    assert got["hit_tokens"] == got["upper_bounds"]["unbounded"]["hit_tokens"]
    assert got["misses"]["evicted_tokens"] == 0


def test_the_counter_of_offers_forgets_the_oldest():
    """A key counts towards the threshold only while it is among the 64,000 offered most recently."""
    fresh = [[f"n{i}-{k}" for k in range(1000)] for i in range(64)]
    for between, stored in ((fresh[:63], 2), (fresh, 0)):
        trace = trace_of([["a", "b"], *between, ["a", "b"]])
        request = ReplayRequest(trace, 4, 10, store_threshold=2)
        assert REPLAYERS["vllm-offload"](request, "lru")["stored_chunks"] == stored


# what cannot be


def test_what_cannot_be_is_refused_and_never_panics():
    trace = trace_of([["a", "b"]], output_tokens=[1])
    none = np.full(1, 2**32 - 1, np.uint32)
    keys = _core.Keys(trace.id_offsets, trace.block_ids, 1, np.array([2], np.uint32), none)
    n = trace.input_tokens.astype(np.uint64)
    replays = _core.EngineRequests(keys, n, n, 4, 0, False)
    calls = [
        lambda: keys.key(1, 0),
        lambda: _core.Keys(trace.id_offsets, trace.block_ids | 2**32 - 1, 1, np.array([2], np.uint32), none),
        lambda: replays.vllm(0),
        lambda: replays.vllm(2**32 - 1),
        lambda: replays.offload("arc", 0, 0),
        lambda: _core.EngineRequests(keys, n, n + 2**62, 4, 0, False),
        lambda: _core.key_lines(np.zeros(1, np.uint64), 0, []),
    ]
    each_is_refused(calls)


# what the replays refuse, and their integers on a workload that anyone can make


def generated(requests=60):
    """Prompts of one to six ids along a few chains that part at their fourth, by a multiplicative walk."""
    rows, tokens, outputs = [], [], []
    x = 7
    for i in range(requests):
        x = x * 48271 % 2147483647
        length = 1 + x % 6
        start = 0 if x % 3 else 1 + x // 7 % 3
        rows.append([f"{start}.{k}" if k < 3 else f"{start}.{k}.{i % 4}" for k in range(length)])
        tokens.append(length * 8)
        outputs.append(1 + x % 11)
    return trace_of(rows, block_size=8, input_tokens=tokens, output_tokens=outputs)


@pytest.mark.parametrize(
    ("capacity", "sizes"),
    [
        (16, [15, 1, 14, 5, 8.285714285714285]),
        (24, [12, 12, 18, 7, 10.88888888888889]),
        (30, [12, 18, 24, 12, 9.142857142857142]),
    ],
)
def test_ghosts_move_the_target_by_their_ratio(capacity, sizes):
    """Long enough for both ghost lists to differ: the target leaves the whole numbers."""
    request = ReplayRequest(generated(600), 4, capacity)
    core = REPLAYERS["vllm-offload"](request, "arc")
    assert [core[name] for name in ("t1", "t2", "b1", "b2", "target_t1")] == sizes


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"touch_from": "root"}, "--order"),
        ({"last_partial": "keep"}, "--last-partial"),
        ({"discipline": "flat"}, "--flat"),
        ({"store_threshold": 2}, "--store-threshold"),
        ({"reuse_outputs": True}, "--reuse-outputs"),
        ({"block_size_tokens": 3}, "--block-size"),
        ({"capacity_blocks": 0}, "--capacity"),
    ],
)
def test_settings_without_effect_are_refused(change, option):
    request = ReplayRequest(**({"trace": generated(), "block_size_tokens": 4, "capacity_blocks": 9} | change))
    with pytest.raises(UsageError) as refusal:
        REPLAYERS["vllm"](request, "")
    assert refusal.value.where == option


def test_offload_takes_no_window():
    with pytest.raises(UsageError, match="no effect"):
        REPLAYERS["vllm-offload"](ReplayRequest(generated(), 4, 9, window=2), "lru")


def test_outputs_have_the_ids_of_the_next_turn():
    trace = trace_of([["a"], ["b"], ["a", "c"], ["d"]])
    trace.session[:] = [0, 1, 0, -1]
    trace.turn[:] = [0, 0, 1, 0]
    keys = block_keys(ReplayRequest(trace, 4, 9, reuse_outputs=True))
    assert keys.key(0, 1) == keys.key(2, 1) == (2, 0)
    assert keys.key(0, 2) == ("o", 0, 2)
