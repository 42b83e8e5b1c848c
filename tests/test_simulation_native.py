"""The native stretches, the single steps and the Python reference tell the same story (I11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kvcache_sim.cache.settings import CacheSettings, MovementSettings, TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.metrics.run import Run
from kvcache_sim.model.rest_grid import RestGrid, Rests
from kvcache_sim.model.step_time import StepTimeTable
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings, ReplicaSettings, RouterSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import Trace

BLOCK = 16


def table(max_tokens: int = 4096, max_seqs: int = 64) -> StepTimeTable:
    base = 1_000_000 + np.arange(max_tokens + 1, dtype=np.int64) * 20_000
    base[0] = 0
    decode = 5_000_000 + np.arange(max_seqs + 1, dtype=np.int64) * 1_000
    decode[0] = 0
    longest = np.minimum(np.arange(max_seqs + 1, dtype=np.int64), 24) * 12_000_000
    linear = (400_000, 40_000_000, 70_000_000, 6_000_000, 1_000, 2_000, 3_000)
    # Neither base need rise: every third count costs less with a past.
    past_base = base - (np.arange(max_tokens + 1) % 3 == 0) * base // 4
    # What KV and a past cost besides is not linear, and may fall.
    kv_rest = RestGrid(
        (1, 8, 64), (1, 200, 4000), ((0, 9, 7), (5, 900_000, 100_000), (-9, 40_000, 3_000_000))
    )
    past_rest = RestGrid(
        (1, 64, 4096), (1, 1000, 5000), ((0, 99, 9), (70_000, 2_000_000, -40_000), (1, 2, 3))
    )
    apart = {
        "longest_fs": longest,
        "past_base_ns": past_base,
        "rests": Rests(kv_rest, kv_rest.times(0.5), past_rest),
    }
    return StepTimeTable(base, decode, *linear, idle_fs=50_000, beside_fs=700_000_000_000, **apart)


def random_trace(seed: int, requests: int = 120, sessions: int = 12) -> Trace:
    """Sessions that grow turn by turn over shared system prompts, with ties in arrival."""
    draw = np.random.default_rng(seed)
    histories: list[list[int]] = [[] for _ in range(sessions)]
    fresh = 100
    ids, offsets, inputs, outputs, session, turn = [], [0], [], [], [], []
    turns = [0] * sessions
    for _ in range(requests):
        s = int(draw.integers(sessions))
        if not histories[s]:
            histories[s] = [int(draw.integers(3))]
        grow = int(draw.integers(1, 5))
        histories[s] = histories[s] + list(range(fresh, fresh + grow))
        fresh += grow
        partial = int(draw.integers(64))
        row = histories[s] + ([fresh] if partial else [])
        fresh += 1
        ids += row
        offsets.append(len(ids))
        inputs.append(len(histories[s]) * 64 + partial)
        outputs.append(int(draw.integers(0, 90)))
        session.append(s)
        turn.append(turns[s])
        turns[s] += 1
        if draw.random() < 0.15:
            histories[s], turns[s] = [], turns[s]
    _, dense = np.unique(np.array(ids), return_inverse=True)
    first: dict[int, int] = {}
    dense = np.array([first.setdefault(int(i), len(first)) for i in dense], np.uint32)
    arrivals = np.sort(draw.integers(0, 30, requests)) * 100_000_000
    return Trace(
        arrivals.astype(np.int64),
        np.array(inputs, np.int64),
        np.array(outputs, np.int64),
        np.array(offsets, np.int64),
        dense,
        64,
        np.array(session, np.int32),
        np.array(turn, np.int32),
        np.full(requests, -1, np.int64),
        np.zeros(requests, bool),
        priority=(5 * np.arange(requests) + 2) % 3,
    )


def cluster(
    tiers: tuple[int, ...],
    machines: int = 1,
    through: bool = False,
    pipelined: bool = True,
    **channel: Any,
) -> ClusterSettings:
    names = ("gpu", "cpu", "disk")[: len(tiers)]
    rates = {"gpu->cpu": 4, "cpu->gpu": 5, "cpu->disk": 1, "disk->cpu": 2}
    channels, built = {}, []
    for m in range(machines):
        edges = {e: f"{e} {m}" for e in rates if set(e.split("->")) <= set(names)}
        for edge, name in edges.items():
            channels[name] = ChannelSettings(name, rates[edge] * 10**9, 20_000, 1_000, **channel)
        capacities = tuple(TierSettings(n, c) for n, c in zip(names, tiers, strict=True))
        built.append(MachineSettings(capacities, table(), ReplicaSettings(512, 8), edges))
    return ClusterSettings(
        tuple(built),
        channels,
        CacheSettings(block_size_tokens=BLOCK),
        MovementSettings(
            write={"gpu": "through" if through else "back", "cpu": "back"}, layer_pipelining=pipelined
        ),
    )


SHAPES = [
    ((160,), False),
    ((90, 200), False),
    ((90, 60, 400), False),
    ((90, 200), True),
    ((100, 40, 60), True),
]


@pytest.mark.parametrize(("tiers", "through"), SHAPES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_stretches_single_steps_and_the_reference_agree(tiers, through, seed):
    agree(cluster(tiers, 2 if seed == 3 else 1, through), random_trace(seed))


def agree(settings: ClusterSettings, trace: Trace) -> Run:
    """Check that the two ways to run and the two backends give the same run; return it."""
    runs = [
        simulate(settings, trace, options=RunOptions(check="full")),
        simulate(settings, trace, options=RunOptions(step_every_iteration=True, check="full")),
        simulate(settings, trace, options=RunOptions(backend="python")),
    ]
    assert len({run.digest_events for run in runs}) == 1
    assert len({run.digest_results for run in runs}) == 1
    assert runs[0].engine.events < runs[1].engine.events
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].itl_ns.values_ns, other.itl_ns.values_ns)
        np.testing.assert_array_equal(runs[0].itl_ns.counts, other.itl_ns.counts)
    return runs[0]


@pytest.mark.parametrize("policy", ROUTERS)
def test_every_router_decides_alike_however_the_run_is_made(policy):
    settings = replace(cluster((90, 60, 400), 3, through=policy == "random"), router=RouterSettings(policy))
    run = agree(settings, random_trace(6))
    assert len(np.unique(run.requests["machine"])) == 3


@pytest.mark.parametrize(
    "channel",
    [
        {"sharing": "fair"},
        {"priority": "loads-first"},
        {"sharing": "fair", "priority": "loads-first"},
        {"latency_occupies": True},
    ],
)
@pytest.mark.parametrize("pipelined", [True, False])
def test_every_kind_of_channel_tells_one_story(channel, pipelined):
    agree(cluster((90, 60, 400), 2, through=True, pipelined=pipelined, **channel), random_trace(4))


def test_serving_layer_by_layer_changes_no_result_of_fifo_channels():
    settings = cluster((90, 60, 400))
    fair = ChannelSettings("unused", 10**9, sharing="fair")
    layered = replace(settings, channels={**settings.channels, "unused": fair})
    plain, by_event = (simulate(one, random_trace(2)) for one in (settings, layered))
    assert plain.digest_results == by_event.digest_results


def reading_each_other(tiers=(90, 60, 400), machines: int = 3, **movement: Any) -> ClusterSettings:
    settings = cluster(tiers, machines, pipelined=movement.pop("layer_pipelining", True))
    network = NetworkSettings(default=ChannelSettings("net", 3 * 10**9, 30_000))
    return replace(
        settings, movement=replace(settings.movement, lookup="cluster", **movement), network=network
    )


@pytest.mark.parametrize(
    "movement",
    [
        {},
        {"layer_pipelining": False},
        {"remote_disk": "staged"},
        {"write": {"gpu": "through", "cpu": "back"}},
        {"tiers": (90, 70)},
        {"tiers": (90, 40, 60), "machines": 2},
    ],
)
def test_machines_that_read_from_each_other_tell_one_story(movement):
    run = agree(reading_each_other(**movement), random_trace(6))
    assert run.requests["cached_remote_tokens"].sum() > 0
    assert run.requests["fetch_remote_ns"].sum() > 0


def test_fair_channels_carry_remote_reads_too():
    settings = reading_each_other()
    fair = replace(settings.network.default, sharing="fair")
    settings = replace(settings, network=NetworkSettings({(0, 1): "0->1"}, fair))
    channels = {**settings.channels, "0->1": replace(fair, name="0->1")}
    agree(replace(settings, channels=channels), random_trace(6))


def test_machines_of_different_kinds_read_from_each_other():
    settings = reading_each_other()
    small, plain, large = settings.machines
    plain = replace(plain, tiers=plain.tiers[:1], edge_channels={})
    large = replace(
        large,
        tiers=(*large.tiers[:1], TierSettings("cpu", 500)),
        edge_channels={edge: name for edge, name in large.edge_channels.items() if "disk" not in edge},
    )
    run = agree(replace(settings, machines=(small, plain, large)), random_trace(7))
    remote = run.requests["cached_remote_tokens"]
    assert remote[run.requests["machine"] == 1].sum() == 0, "no cpu tier to land on"
    assert remote[run.requests["machine"] != 1].sum() > 0


def test_loads_first_shortens_the_wait_for_kv():
    def wait(**channel: Any) -> int:
        settings = cluster((90, 400), through=True, **channel)
        one = replace(
            settings.machines[0], edge_channels=dict.fromkeys(("gpu->cpu", "cpu->gpu"), "cpu->gpu 0")
        )
        return int(
            simulate(replace(settings, machines=(one,)), random_trace(5)).requests["fetch_cpu_ns"].sum()
        )

    assert wait(priority="loads-first") < wait()


def test_the_traces_of_this_file_reach_the_hard_cases():
    run = simulate(cluster((100, 40, 60)), random_trace(1))
    rows = run.requests
    assert rows["preemptions"].sum() > 0
    assert rows["cached_cpu_tokens"].sum() > 0
    assert rows["cached_disk_tokens"].sum() > 0
    assert run.counters["evictions.disk"] > 0
    assert run.counters["merged_blocks"] > 0
