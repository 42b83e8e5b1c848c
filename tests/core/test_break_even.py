"""Fetch or recompute: the closed form, the plan that a policy sees, and the switch in whole runs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from break_even import FetchCosts, break_even_blocks
from fleet_runs import at_times, found
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.tiers import STAGING
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.report.explain.break_even import break_even_tokens
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


def chunked_ns(tokens):
    """Return the time of a prompt in steps of 400 tokens."""
    return -(-tokens // 400) * STEP_NS + tokens * TOKEN_NS


@pytest.mark.parametrize(("latency", "first"), [(10_000, 1), (100_000, 11), (300_000, 33), (600_000, 68)])
def test_the_shortest_prefix_that_is_loaded_sooner_on_an_idle_channel(latency, first):
    """A block of 16 KB loads in 8 µs; computed it takes 16 and each step of 400 tokens 20 more."""
    own = cluster(2 * 10**9, latency, pipelining=False, submit=0)
    machine = replace(own.machines[0], replica=ReplicaSettings(400, 8))
    own = replace(own, machines=(machine,))
    gains = [latency + blocks * 8_000 < chunked_ns(blocks * BLOCK) for blocks in range(1, 99)]
    assert break_even_tokens(own, "cpu") == (1 + gains.index(True)) * BLOCK == first * BLOCK


def test_explain_counts_the_hits_that_were_shorter(tmp_path, capsys):
    """Of a prompt of eight blocks four, six and seven come from the CPU: six are the first that are worth it."""
    lengths = (8, 5, 7, 8)
    rows = [
        row
        for n, blocks in enumerate(lengths)
        for row in ((2 * n, 0, 1, blocks), (2 * n + 1, 20 * n + 20, 1, 10))
    ]
    more = (
        "tiers: {gpu: {capacity: 10 blocks}, cpu: {capacity: 99 blocks}}\nwrite: {policy: through}\n"
        "fetch: {policy: always}\nchannels: {cpu-to-gpu: {bandwidth: 8GB/s, latency: 20ms}}"
    )
    _, made = at_times(tmp_path, rows, "{}", more)
    assert found(made, "cached_cpu_tokens") == [0, 0, 4, 0, 6, 0, 7, 0]
    assert kvsim(["simulate", "-c", str(tmp_path / "s.yaml"), "-o", str(tmp_path / "run"), "-q"]) == 0
    assert kvsim(["explain", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "from 3,072 tokens, on an idle channel; 33.3 % of its hits were shorter" in said
