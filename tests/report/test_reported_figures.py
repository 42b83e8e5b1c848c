"""Figures of hops, channels and tiers: exact sums, definitions in closed form, and reasons of a tier
without traffic."""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.metrics.channel_use import ChannelUse, summarize_channels
from kvcache_sim.metrics.tier_use import TierUse, no_effect
from support.agreement import agree_on
from support.product.reports import summary_text
from support.product.spec import Demand
from support.tiered_scenario import run_with, summary_with

STALLS = ("stall_cpu_gpu_ns", "stall_remote_cpu_ns", "stall_disk_cpu_ns")


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("fetch.lookup=cluster",),
        ("fetch.lookup=cluster", "fetch.remote_disk=staged"),
        ("fetch.layer_pipelining=false",),
        ("fetch.lookup=cluster", "channels.cpu-to-gpu.sharing=fair"),
        ("write.policy=through", "prefetch.policy=queued"),
    ],
    ids=str,
)
def test_the_stalls_of_the_hops_sum_to_the_fetch_part_of_every_request(overrides):
    rows = run_with(*overrides).requests
    assert np.array_equal(rows["fetch_room_ns"] + sum(rows[name] for name in STALLS), rows["fetch_ns"])
    sources = rows["fetch_cpu_ns"] + rows["fetch_disk_ns"] + rows["fetch_remote_ns"]
    assert np.array_equal(sum(rows[name] for name in STALLS), sources)
    assert sources.sum() > 0


@pytest.mark.parametrize(
    ("slow", "hop"),
    [
        ("channels.cpu-to-gpu.bandwidth=400MB/s", "stall_cpu_gpu_ns"),
        ("channels.disk-to-cpu.bandwidth=400MB/s", "stall_disk_cpu_ns"),
        ("channels.net.bandwidth=400MB/s", "stall_remote_cpu_ns"),
    ],
)
def test_a_slow_hop_is_where_the_stall_is(slow, hop):
    plain, slowed = (run_with("fetch.lookup=cluster", *more).requests for more in ((), (slow,)))
    assert max(STALLS, key=lambda name: slowed[name].sum()) == hop
    assert slowed[hop].sum() > 5 * plain[hop].sum()


# --- channels ----------------------------------------------------------------------------------------------


def test_the_demand_of_a_channel_by_hand():
    demand = Demand()
    for now, size in ((0, 10), (NS_PER_S - 1, 5), (3 * NS_PER_S, 7)):
        demand.ask(size, now)
    assert list(demand.offered) == [15, 7]
    demand.hide(1000, 2 * NS_PER_S)
    demand.hide(3, NS_PER_S * 2)
    assert list(demand.hiding) == [500, 2]
    use = ChannelUse("up", 100, 22, 3, 500, 20, np.array(demand.hiding), np.array(demand.offered))
    idle = ChannelUse("down", 100, 0, 0, 0, 0, np.zeros(0, np.int64), np.zeros(0, np.int64))
    reported = summarize_channels((use, idle), 1000)
    assert list(reported) == ["up"]
    assert reported["up"]["busy_share"] == 0.5
    assert reported["up"]["needed_bytes_per_s"] == {"p50": 251.0, "p99": 495.02, "max": 500.0}
    assert reported["up"]["offered_bytes_per_s"]["max"] == 15.0


def test_what_a_channel_would_have_needed_does_not_hang_on_what_it_has_and_hides_the_loads():
    """At the needed rate a step waits for one layer of thirty-two; far below it, for nearly all."""
    slow, plain = (
        summary_with(f"channels.cpu-to-gpu.bandwidth={rate}", "replica.max_num_seqs=1", "tiers.disk=null")
        for rate in ("2GB/s", "400GB/s")
    )
    ups = [name for name in plain["channels"] if name.startswith("cpu-to-gpu")]
    for name in ups:
        needed = [s["channels"][name]["needed_bytes_per_s"]["p50"] for s in (slow, plain)]
        assert needed[0] == pytest.approx(needed[1], rel=0.2)
        assert 2e9 < needed[0] < 400e9
    stalls = [s["latency"]["fetch_parts"]["stall_cpu_gpu"]["avg"] for s in (slow, plain)]
    assert stalls[0] > 30 * stalls[1]


def test_what_the_edges_moved_is_what_the_channels_carried_and_the_tiers_took():
    run = run_with("fetch.lookup=cluster", "write.policy=through")
    sent = sum(channel.sent_bytes for channel in run.channels)
    assert sent == sum(n for name, n in run.counters.items() if name.startswith("edge."))
    carried = {
        tier: sum(u.written_bytes for u in run.tiers if u.tier == tier) for tier in ("gpu", "cpu", "disk")
    }
    edge = {name[5:-6]: n for name, n in run.counters.items() if name.startswith("edge.")}
    assert carried["gpu"] == edge["cpu->gpu"]
    assert carried["disk"] == edge["cpu->disk"]
    read = {tier: sum(u.read_bytes for u in run.tiers if u.tier == tier) for tier in ("gpu", "cpu", "disk")}
    assert read["gpu"] == edge["gpu->cpu"]
    assert read["disk"] == edge["disk->cpu"]
    assert carried["cpu"] <= edge["gpu->cpu"] + edge["disk->cpu"] + edge["remote->cpu"]
    assert read["cpu"] >= edge["cpu->gpu"] + edge["cpu->disk"]


# --- tiers -------------------------------------------------------------------------------------------------


def test_an_exclusive_edge_leaves_fewer_duplicates():
    both, once = (summary_with(*more)["tiers"] for more in ((), ("fetch.exclusive=[cpu->gpu, disk->cpu]",)))
    assert once["cpu"]["duplicate_blocks"] < both["cpu"]["duplicate_blocks"]
    assert once["disk"]["duplicate_blocks"] < both["disk"]["duplicate_blocks"]


def test_the_specification_counts_the_same():
    run = agree_on("fetch.lookup=cluster", "workload.requests=60")
    assert any(use.duplicate_blocks for use in run.tiers)


#: The reason → (settings of a scenario in which it holds, the tier).
NO_EFFECT = {
    "gpu never evicted a block": (("tiers.gpu.capacity=unbounded", "tiers.disk=null"), "cpu"),
    "cpu never evicted a block": (("tiers.cpu.capacity=unbounded",), "disk"),
    "fetch.policy is never": (("fetch.policy=never",), "cpu"),
    "no block was written to it": (
        ("write.policy=selective", "write.selective_uses=40", "tiers.disk=null"),
        "cpu",
    ),
    "no block was loaded from it": (
        ("workload.turns={kind: constant, value: 1}", "workload.system_prompt_tokens=0", "tiers.disk=null"),
        "cpu",
    ),
}


@pytest.mark.parametrize("reason", NO_EFFECT)
def test_a_tier_that_did_nothing_says_why(reason):
    overrides, tier = NO_EFFECT[reason]
    summary = summary_with(*overrides)
    reported = summary["tiers"][tier]["no_effect"]
    assert reported is not None
    assert reported.endswith(reason)
    wall = {"wall": {"cpu_s": 1.0, "peak_rss_bytes": 1}}
    lines = summary_text(summary | wall, "run").splitlines()
    assert any(reported in line for line in lines)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_a_tier_that_served_anything_has_no_such_line():
    summary = summary_with()
    assert [tier["no_effect"] for tier in summary["tiers"].values()] == [None] * 3
    assert "no effect" not in summary_text(summary | {"wall": {"cpu_s": 1.0, "peak_rss_bytes": 1}}, "run")


def test_what_only_other_machines_read_has_an_effect():
    uses = (TierUse("gpu", 1, 0, 0, 5, 0, True), TierUse("cpu", 1, 9, 9, 0, 0, True))
    hits = {"gpu": 0, "cpu": 0, "disk": 0, "remote": 64}
    assert no_effect("cpu", uses, hits) is None
    gpu, cpu = uses
    unread = (gpu, replace(cpu, read_bytes=0))
    assert no_effect("cpu", unread, hits | {"remote": 0}) == "cpu served nothing: no block was loaded from it"
    assert no_effect("cpu", uses, hits | {"remote": 0}) is None, "prefetched blocks hit above"
    above_disk = (*uses, TierUse("disk", 1, 0, 0, 0, 0, True))
    assert no_effect("cpu", above_disk, hits | {"remote": 0}) == no_effect(
        "cpu", unread, hits | {"remote": 0}
    )
