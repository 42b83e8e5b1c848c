"""Samples of a run over time: against its capacities, its requests and its channels."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from kvcache_sim.metrics.parts import parts_of
from kvcache_sim.metrics.sampler import LEAST_INTERVAL_NS, SAMPLES
from support.tiered_scenario import load, run_scenario

CAPACITY = {"gpu": 400, "cpu": 500, "disk": 9000}
STATES = ("free", "held", "cached", "in_flight")
COUNTS = ("queue", "running", "loading", "output_tokens")


def sampled(*overrides):
    """Return a run and its samples: time → (machine, name) → value."""
    run = run_scenario(load(*overrides))
    samples = defaultdict(dict)
    for part in parts_of(run.series):
        names = [part["name"].words[code] for code in part["name"].codes]
        rows = zip(
            part["time_ns"].tolist(), part["machine"].tolist(), names, part["value"].tolist(), strict=True
        )
        for at_ns, machine, name, value in rows:
            assert (machine, name) not in samples[at_ns]
            samples[at_ns][machine, name] = value
    return run, samples


@pytest.mark.parametrize(
    ("overrides", "lost_ns"),
    [(("fetch.lookup=cluster",), None), (("fleet={plan: [{at: 9s, do: lose, machine: 1}]}",), 9 * 10**9)],
)
def test_samples_are_even_in_time_and_see_all_that_has_happened(overrides, lost_ns):
    """A lost machine reads nought from then on; a channel that is created later has no earlier samples."""
    run, samples = sampled(*overrides)
    times = [*samples]
    gaps = {b - a for a, b in pairwise(times)}
    assert len(gaps) == 1
    rows = run.requests
    span_ns = int(rows["arrival_ns"].max() - rows["arrival_ns"].min())
    assert min(gaps) == pytest.approx(max(span_ns / SAMPLES, LEAST_INTERVAL_NS), rel=0.01)
    known, made = set(), {0: 0, 1: 0}
    for at_ns, own in samples.items():
        machines = {key: value for key, value in own.items() if key[0] >= 0}
        names = [*COUNTS, *(f"{tier}.{state}" for tier in CAPACITY for state in STATES)]
        assert [*machines] == [(machine, name) for machine in (0, 1) for name in names]
        for machine in (0, 1):
            is_lost = lost_ns is not None and machine == 1 and at_ns >= lost_ns
            for tier, blocks in CAPACITY.items():
                assert sum(own[machine, f"{tier}.{state}"] for state in STATES) == blocks * (not is_lost)
            assert own[machine, "output_tokens"] >= made[machine] * (not is_lost)
            made[machine] = own[machine, "output_tokens"]
        inside = sum(own[machine, name] for machine in (0, 1) for name in COUNTS[:3])
        assert inside == np.sum((rows["arrival_ns"] <= at_ns) & (rows["finish_ns"] > at_ns))
        channels = {name for machine, name in own if machine < 0}
        assert known <= channels
        known = channels
        assert all(own[-1, name] <= at_ns for name in channels if name.endswith("busy_ns"))
    last = samples[times[-1]]
    for use in run.channels:
        sent, busy_ns = last[-1, f"channel.{use.name}.bytes"], last[-1, f"channel.{use.name}.busy_ns"]
        assert 0.9 * use.sent_bytes <= sent <= use.sent_bytes
        assert (busy_ns > 0) is (sent > 0)
    grown = len(known) > sum(machine < 0 for machine, _ in samples[times[0]])
    assert grown is (lost_ns is None), "links between machines are created by their first use"
    if lost_ns is None:
        assert sum(made.values()) == pytest.approx(rows["output_tokens"].sum(), rel=0.05)


def test_a_channel_with_a_queue_is_busy_no_longer_than_time_has_passed():
    """Loads of half a minute's bytes wait for it: it is busy for nearly all of the time, and never for more."""
    _, samples = sampled("channels.cpu-to-gpu.bandwidth=30MB/s")
    busy = [(at_ns, own[-1, "channel.cpu-to-gpu-0.busy_ns"]) for at_ns, own in samples.items()]
    assert all(busy_ns <= at_ns for at_ns, busy_ns in busy)
    assert max(busy_ns / at_ns for at_ns, busy_ns in busy if at_ns) > 0.9
