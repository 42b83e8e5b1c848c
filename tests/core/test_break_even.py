"""Fetch or recompute: the closed form, the plan that a policy sees, and the switch in whole runs."""

import numpy as np
import pytest
from break_even import FetchCosts, break_even_blocks
from fleet_runs import at_times, found
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings
from kvcache_sim.simulation import simulate
from support.small_traces import trace_of

BLOCK, LAYERS = 16, 4

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
        "fetch: {policy: always}\nchannels: {cpu-to-gpu: {bandwidth: 8GB/s, latency: 70ms}}"
    )
    _, made = at_times(tmp_path, rows, "{}", more)
    assert found(made, "cached_cpu_tokens") == [0, 0, 4, 0, 6, 0, 7, 0]
    assert kvsim(["simulate", "-c", str(tmp_path / "s.yaml"), "-o", str(tmp_path / "run"), "-q"]) == 0
    assert kvsim(["explain", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "beats recomputing from 3,072 tokens on: for 66.7 % of its hits" in said
