"""Fetch or recompute: the closed form, the plan that a policy sees, and the switch in whole runs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from break_even import FetchCosts, break_even_blocks
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.tiers import STAGING
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.model.step_time import StepBatch, StepTimeTable
from kvcache_sim.report.explain import break_even as explained
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.simulation import simulate
from kvcache_sim.spec.block_store import Part
from kvcache_sim.spec.blocks import NO_MOVE
from support.small_traces import trace_of
from support.spec_fetch import Plan, fetch_cheaper

BLOCK, LAYERS = 16, 4

COSTS = st.builds(
    FetchCosts,
    latency_ns=st.integers(0, 3_000),
    load_ns_per_block=st.integers(0, 100).map(lambda n: n * LAYERS),
    compute_ns_per_block=st.integers(0, 400),
    residual_ns=st.integers(0, 3_000),
    layers=st.just(LAYERS),
    pipelining=st.booleans(),
    submit_ns_per_block=st.sampled_from([0, 0, 8, 60]),
)


def fetched(costs: FetchCosts, blocks: int) -> bool:
    """Return whether the specification's policy loads the blocks."""
    load, latency = blocks * costs.load_ns_per_block, costs.latency_ns

    def arrival(parts, n):
        before = latency + n * costs.submit_ns_per_block
        return (before + load // LAYERS, before + load) if n else (0, 0)

    def compute(tokens, n):
        return costs.residual_ns + (blocks - n) * costs.compute_ns_per_block

    mover = SimpleNamespace(pipelining=costs.pipelining, layers=LAYERS)
    estimates = SimpleNamespace(arrival_ns=arrival, compute_ns=compute, mover=mover)
    return fetch_cheaper(Plan(estimates, [Part(STAGING, 0, blocks, NO_MOVE)], 0, blocks * BLOCK)) == blocks


@given(COSTS)
def test_the_policy_fetches_exactly_between_the_bounds_of_the_closed_form(costs):
    bounds = break_even_blocks(costs)
    for blocks in (*range(1, 40), 1_000, 100_000):
        inside = bounds is not None and bounds[0] <= blocks and (bounds[1] is None or blocks <= bounds[1])
        assert fetched(costs, blocks) == inside


def test_the_textbook_case():
    """12 µs of latency; a block loads in 1 µs and is computed in 4: from 12 / (4 − 1) = 4 blocks on."""
    costs = FetchCosts(12_000, 1_000, 4_000, 0, 4, pipelining=False)
    assert break_even_blocks(costs) == (4, None)
    assert break_even_blocks(replace(costs, load_ns_per_block=4_000)) is None, "the link is never faster"


def test_a_slow_link_hides_short_prefixes_under_the_rest():
    # With 9 µs of the rest's 12 overlapped, 4 µs of every block's 8 are not paid for: at most two blocks.
    costs = FetchCosts(0, 8_000, 4_000, 12_000, 4)
    assert break_even_blocks(costs) == (1, 2)


# -- whole runs

#: A token is computed in 1 µs, a step costs 20 µs more.
TOKEN_NS, STEP_NS = 1_000, 20_000


def cluster(bandwidth: int, latency: int, pipelining: bool, submit: int) -> ClusterSettings:
    base = STEP_NS + np.arange(4097, dtype=np.int64) * TOKEN_NS
    base[0] = 0
    decode = np.full(9, 50_000, np.int64)
    decode[0] = 0
    channels = {
        "up": ChannelSettings("up", bandwidth, latency, piece_submit_ns=submit),
        "down": ChannelSettings("down", 10**12),
    }
    machine = MachineSettings(
        (TierSettings("gpu", 24), TierSettings("cpu", 500)),
        StepTimeTable(base, decode, 0, 0, 0, 0, 0, 0, 0),
        ReplicaSettings(4096, 8),
        {"cpu->gpu": "up", "gpu->cpu": "down"},
    )
    return ClusterSettings(
        (machine,),
        channels,
        CacheSettings(block_size_tokens=BLOCK, kv_bytes_per_token=1_000, num_layers=LAYERS),
        MovementSettings(fetch="cheaper", layer_pipelining=pipelining),
    )


@pytest.mark.parametrize(
    ("bandwidth", "latency", "pipelining", "submit"),
    [
        (4 * 10**9, 70_000, False, 0),
        (2 * 10**9, 70_000, True, 0),
        (8 * 10**8, 0, True, 0),
        (5 * 10**8, 0, False, 0),
        (4 * 10**9, 20_000, False, 1_500),
        (2 * 10**9, 30_000, True, 1_000),
        (2 * 10**9, 0, True, 5_000),
    ],
)
def test_whole_runs_switch_at_exactly_the_closed_forms_length(bandwidth, latency, pipelining, submit):
    """A prompt of k blocks and 7 tokens comes, others push it off the GPU, and it comes with another end."""
    rest = 7
    costs = FetchCosts(
        latency,
        BLOCK * 1_000 * 10**9 // bandwidth,
        BLOCK * TOKEN_NS,
        STEP_NS + rest * TOKEN_NS,
        LAYERS,
        pipelining,
        LAYERS * submit,
    )
    bounds = break_even_blocks(costs)
    rows, tokens = [], []
    for k in range(1, 22):
        shared = [f"{k}.{block}" for block in range(k)]
        rows += [[*shared, f"{k}.a"], [f"{k}.other.{block}" for block in range(24)], [*shared, f"{k}.b"]]
        tokens += [k * BLOCK + rest, 24 * BLOCK - 1, k * BLOCK + rest]
    arrivals = [n * 10**9 for n in range(len(rows))]
    trace = trace_of(rows, BLOCK, tokens, arrivals, [1] * len(rows))
    loaded = simulate(cluster(bandwidth, latency, pipelining, submit), trace).requests["cached_cpu_tokens"]
    for k, hit in zip(range(1, 22), loaded[2::3].tolist(), strict=True):
        inside = bounds is not None and bounds[0] <= k and (bounds[1] is None or k <= bounds[1])
        assert hit == (k * BLOCK if inside else 0), (k, bounds)
    assert {hit > 0 for hit in loaded[2::3].tolist()} == ({True, False} if bounds else {False})


def test_hits_of_the_length_itself_are_not_shorter(monkeypatch):
    monkeypatch.setattr(explained, "load_ns", lambda *_: 1)
    monkeypatch.setattr(explained, "break_even_tokens", lambda *_: 3 * BLOCK)
    cache, machine = CacheSettings(block_size_tokens=BLOCK), SimpleNamespace(replica=ReplicaSettings())
    case = SimpleNamespace(
        tiers=("gpu", "cpu"),
        scenario=SimpleNamespace(settings=SimpleNamespace(cache=cache, machines=[machine])),
        run=SimpleNamespace(finished={"cached_cpu_tokens": np.array([0, 2, 3, 3, 4]) * BLOCK}),
    )
    said = explained.break_even("cpu", case)
    assert said.endswith("from 48 tokens, on an idle channel; 25.0 % of its hits were shorter.")


@pytest.mark.parametrize(
    ("tokens", "chunks"),
    [(40, [(40, 0)]), (41, [(40, 0), (1, 40)]), (100, [(40, 0), (40, 40), (20, 80)]), (1, [(1, 0)]), (0, [])],
)
def test_a_prefix_is_computed_in_chunks_of_the_budget_without_decodes(tokens, chunks):
    batches = []
    table = SimpleNamespace(step=lambda batch: (batches.append(batch), 7 + len(batches))[1])
    machine = SimpleNamespace(replica=SimpleNamespace(max_num_batched_tokens=40), step_time=table)
    found = explained.compute_ns(SimpleNamespace(machines=[machine]), tokens)
    assert batches == [StepBatch((chunk,), 0, 0, 0) for chunk in chunks]
    assert found == sum(8 + n for n in range(len(chunks)))


@pytest.mark.parametrize("shortest", [*range(1, 20), 63, 64, 65, None])
def test_the_shortest_prefix_is_that_of_trying_each(monkeypatch, shortest):
    """A load of 90 ns and 3 a token loses at every length but from the shortest on."""
    settings = SimpleNamespace(cache=SimpleNamespace(block_size_tokens=BLOCK))
    monkeypatch.setattr(
        explained, "load_ns", lambda _, tier, tokens: 90 + 3 * tokens if tier == "disk" else None
    )
    gains = 0 if shortest is None else 90 / (BLOCK * (shortest - 0.5))
    monkeypatch.setattr(explained, "compute_ns", lambda _, tokens: (3 + gains) * tokens)
    assert explained.break_even_tokens(settings, "disk") == (None if shortest is None else shortest * BLOCK)
    assert explained.break_even_tokens(settings, "cpu") is None
