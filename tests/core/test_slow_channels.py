"""Channels that are slow or down for a time: to the nanosecond, and in a run."""

import random

import pytest
from kvcache_sim import _core
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.product.machines import Slowdown
from support.spec_slow_channels import SlowedFifo
from support.spec_submission import SubmittedFifo
from support.tiered_scenario import SLOW_LINKS, load


def times(sent):
    """Return the times of a transmission: of its first layer, of all, and per layer."""
    return sent.first_layer_ns, sent.completion_ns, sent.per_layer_ns


def passed(at_ns, slowdowns):
    """Return the share of the rate at a time, by looking at every slowdown."""
    return next((s.share_ppm for s in slowdowns if s.from_ns <= at_ns < s.until_ns), 1_000_000)


@pytest.mark.parametrize("seed", range(40))
def test_a_slow_channel_against_a_walk_of_single_nanoseconds(seed):
    draw = random.Random(seed)
    edges = sorted(draw.sample(range(1, 300), 6))
    slowdowns = tuple(
        Slowdown(a, b, draw.choice([0, 250_000, 500_000, 100_000]))
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    )
    channel = SlowedFifo(ChannelSettings("c", 10**9, draw.choice([0, 5]), slowdowns=slowdowns))
    free, now, busy = 0, 0, 0
    for _ in range(8):
        now += draw.randint(0, 40)
        layers, work = draw.randint(1, 4), draw.randint(1, 12)
        sent = channel.transmit((layers * work, 1, layers), now)
        at, arrivals = max(now, free), []
        start = at
        for _ in range(layers):
            left = work * 1_000_000
            while left > 0:
                left -= passed(at, slowdowns)
                at += 1
            arrivals.append(at + channel.settings.latency_ns)
        free, busy = at, busy + at - start
        # a part of a nanosecond more or less in each slowdown that a layer passes
        assert abs(sent.completion_ns - arrivals[-1]) <= 3 * layers
        free = sent.completion_ns - channel.settings.latency_ns
        for layer, arrival in enumerate(arrivals):
            assert sent.first_layer_ns + layer * sent.per_layer_ns >= arrival - 3 * layers
    assert abs(channel.busy_ns - busy) <= 100


@pytest.mark.parametrize("seed", range(40))
def test_the_cores_slow_channel_is_that_of_the_specification(seed):
    draw = random.Random(seed)
    edges = sorted(draw.sample(range(1, 900), 6))
    slowdowns = tuple(
        Slowdown(a, b, draw.choice([0, 250_000, 333_333, 10_000]))
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    )
    pieces = 3, seed % 3, 4 * (seed % 4 == 0)
    wanted = ChannelSettings("c", 10**9, 7, *pieces, latency_occupies=seed % 2 == 0, slowdowns=slowdowns)
    one, other = type("Slowed", (SlowedFifo, SubmittedFifo), {})(wanted), _core.Channel(wanted)
    now, before = 0, None
    for _ in range(30):
        now += draw.randint(0, 60)
        size, pieces, layers = draw.randint(0, 200), draw.randint(0, 9), draw.randint(1, 5)
        if before is not None and draw.random() < 0.4 and before.first_layer_ns >= now:
            now = before.first_layer_ns
            sent = (
                one.transmit((size, pieces, layers), now, before),
                other.forward(size, pieces, layers, before),
            )
        else:
            sent = one.transmit((size, pieces, layers), now), other.transmit(size, pieces, layers, now)
        assert times(sent[0]) == times(sent[1])
        assert one.wait_ns(now, pieces) == other.wait_ns(now, pieces)
        before = sent[0]
    for figure in ("busy_ns", "queued_ns", "sent_bytes", "jobs", "last_call_ns"):
        assert getattr(one, figure) == getattr(other, figure), figure


def test_nothing_passes_a_channel_that_is_down_and_waiting_requests_resume_when_it_is_back():
    base = execute(scenario := load(*SLOW_LINKS), read_requests(scenario), RunOptions()).summary
    plan = "fleet={plan: [{at: 2s, do: slow, channel: cpu-to-gpu, lasts: 30s}]}"
    made = execute(scenario := load(*SLOW_LINKS, plan), read_requests(scenario), RunOptions()).summary
    assert made["latency"]["ttft"]["max"] > base["latency"]["ttft"]["max"] + 10_000
    assert made["requests"]["finished"] == base["requests"]["finished"]
