"""The core has the rows and digests of the specification: tiers, routers, channels, remote reads (I11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.channels.settings import ChannelSettings, NetworkSettings
from kvcache_sim.serving.router.registry import ROUTERS
from kvcache_sim.serving.settings import RouterSettings
from kvcache_sim.simulation import simulate
from support.agreement import agree, beyond_spec
from support.clusters import SHAPES, cluster, reading_each_other
from support.lookahead import assert_same_by_the_clock
from support.traces import random_trace


@pytest.mark.parametrize(("tiers", "through"), SHAPES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tiers_agree(tiers, through, seed):
    agree(cluster(tiers, 2 if seed == 3 else 1, through), random_trace(seed))


@pytest.mark.parametrize("policy", ROUTERS)
def test_routers_see_the_machines_as_they_are(policy):
    """Lookahead is invisible to every router; routers of the seeds choose as the specification does."""
    settings = replace(cluster((90, 60, 400), 3, through=policy == "random"), router=RouterSettings(policy))
    run = assert_same_by_the_clock(settings, random_trace(6))
    assert len(np.unique(run.requests["machine"])) == 3
    if not beyond_spec(settings):
        agree(settings, random_trace(6))


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
def test_every_kind_of_channel_agrees(channel, pipelined):
    agree(cluster((90, 60, 400), 2, through=True, pipelined=pipelined, **channel), random_trace(4))


def test_serving_layer_by_layer_changes_no_result_of_fifo_channels():
    settings = cluster((90, 60, 400))
    fair = ChannelSettings("unused", 10**9, sharing="fair")
    layered = replace(settings, channels={**settings.channels, "unused": fair})
    plain, by_event = (simulate(one, random_trace(2)) for one in (settings, layered))
    assert plain.digest_results == by_event.digest_results


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
def test_machines_that_read_from_each_other_agree(movement):
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
