"""Cost of a replay: blocks per second of look-up, commit and release, and bytes per run and block.

Goals at block 16 on the conversation trace: lru at 524,288 blocks ≥ 100 M blocks/s; 13 capacities × 3
policies at block 512 ≤ 0.5 CPU s; ≤ 100 MiB.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kvcache_sim.policies.resolve import parse_variant
from kvcache_sim.policies.table import EVICTION_POLICIES
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.workload.readers.read import read_trace
from round_times import round_s
from support.shared_files import shared

CAPACITY = 524_288
#: lru is measured separately.
RANKED = [row.example for row in EVICTION_POLICIES if row.kind == "ranked" and row.name != "lru"]
QUEUES = [row.example for row in EVICTION_POLICIES if row.kind == "queue"]
CAPACITIES = [64 << k for k in range(13)]


@pytest.fixture(scope="module")
def trace():
    return read_trace(shared("traces/conversation_trace.jsonl"))


def prompts(trace, size):
    return blocks_of_prompts(ReplayRequest(trace, size, 1, last_partial="keep"))


def test_lru_at_block_16(benchmark, trace):
    """From Python; every round passes the arrays in and finds the runs again."""
    found = benchmark.pedantic(lambda: prompts(trace, 16).native.recency(CAPACITY, "tail"), rounds=10)
    blocks = prompts(trace, 16).references
    benchmark.extra_info |= {
        "M blocks/s": round(blocks / round_s(benchmark, "mean") / 1e6),
        "hit blocks": int(found.hits.sum()),
    }


@pytest.mark.parametrize("policy", RANKED)
def test_leaf_policies_at_block_16(benchmark, trace, policy):
    native, variant = prompts(trace, 16).native, parse_variant(policy, 16)
    benchmark.pedantic(lambda: native.leaf_first(variant.name, CAPACITY, variant.native), rounds=3)
    benchmark.extra_info["M blocks/s"] = round(9_232_000 / round_s(benchmark, "mean") / 1e6)


@pytest.mark.parametrize("policy", QUEUES)
def test_queue_policies_at_block_16(benchmark, trace, policy):
    native, variant = prompts(trace, 16).native, parse_variant(policy, 16)
    benchmark.pedantic(lambda: native.leaf_first(variant.name, CAPACITY, variant.native), rounds=1)
    benchmark.extra_info["M blocks/s"] = round(9_232_000 / round_s(benchmark, "mean") / 1e6)


def test_thirteen_capacities_of_three_policies(benchmark, trace):
    """The work of 39 replays: lru, fifo and lfu, prefix-aware, at block 512."""

    def replays():
        native, settings = prompts(trace, 512).native, parse_variant("lru", 512).native
        for capacity in CAPACITIES:
            native.recency(capacity, "tail")
            native.leaf_first("fifo", capacity, settings)
            native.leaf_first("lfu", capacity, settings)

    benchmark.pedantic(replays, rounds=3)
