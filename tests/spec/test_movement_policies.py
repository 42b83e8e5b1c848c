"""Policies of KV movement and orders of the queue do what they say."""

from dataclasses import replace

import numpy as np
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import simulate
from support.clusters import cluster, moving
from support.pools import pools, requests
from support.small_traces import trace_of
from support.traces import random_trace


def run(settings: ClusterSettings, seed: int = 8):
    return simulate(settings, random_trace(seed))


def test_a_request_that_finds_the_batch_empty_waits_for_the_last_synchronous_write_too():
    trace = requests((0, 64, 1), (0.7, 64, 1))
    settings = pools("b", tiers=(None, 100))
    behind, inline = (
        simulate(replace(settings, movement=MovementSettings(write={"gpu": how})), trace)
        for how in ("through", "through-sync")
    )
    assert behind.requests["first_token_ns"].tolist() == [640_000, 1_340_000]
    # the first of the 4 layers leaves after 0.16 ms; 4 blocks of 1 ms and the latency
    copied_ns = 160_000 + 4_000_000 + 100_000
    assert inline.requests["first_token_ns"].tolist() == [640_000, copied_ns + 640_000]


def slow(settings: ClusterSettings, edge: str, factor: int) -> ClusterSettings:
    channels = {
        name: replace(one, bandwidth_bytes_per_s=one.bandwidth_bytes_per_s // factor)
        if name.startswith(edge)
        else one
        for name, one in settings.channels.items()
    }
    return replace(settings, channels=channels)


def test_below_some_bandwidth_recomputing_wins_and_cheaper_knows():
    def ttft(policy: str, factor: int) -> float:
        result = run(slow(moving((90, 400), fetch=policy), "cpu->gpu", factor))
        return float(np.mean(result.requests["first_token_ns"] - result.requests["arrival_ns"]))

    assert ttft("always", 1) < ttft("never", 1)
    assert ttft("never", 200) < ttft("always", 200)
    assert ttft("cheaper", 200) < ttft("always", 200)
    assert ttft("split", 200) < ttft("always", 200)


def test_the_head_of_the_queue_keeps_its_blocks_when_another_would_have_to_go():
    """A ran before B, so its blocks are older. When C needs blocks, A's are evicted; with a window B's, as
    A waits."""
    served = []
    for window in (0, 1):
        settings = moving((8,), {"scheduler_aware_window": window})
        [machine] = settings.machines
        one_at_a_time = replace(machine, replica=replace(machine.replica, max_num_seqs=1))
        settings = replace(settings, machines=(one_at_a_time,))
        a, b, c = [["a0"], ["b0"], ["c0"]]  # an id of 64 tokens is 4 of the 8 blocks
        trace = trace_of([a, b, c, a], 64, [60, 60, 60, 60], [0, 10**9, 2 * 10**9, 2 * 10**9], [1] * 4)
        served.append(simulate(settings, trace).requests["cached_prefix_length_used"].tolist())
    # Three blocks of each are full; C needs four, two are free. The deepest blocks of the older one go.
    assert served == [[0, 0, 0, 16], [0, 0, 0, 48]]


def ordered(order: str, seed: int = 11):
    settings = cluster((90, 60))
    machine = replace(settings.machines[0], replica=replace(settings.machines[0].replica, queue_order=order))
    return replace(settings, machines=(machine,))


def test_queue_orders_do_what_they_say():
    runs = {
        order: run(ordered(order)) for order in ("fcfs", "longest-prefix", "shortest-first", "later-turns")
    }
    hits = {order: int(r.requests["cached_prefix_length_used"].sum()) for order, r in runs.items()}
    assert hits["longest-prefix"] > hits["fcfs"]
    mean = {
        o: float(np.mean(r.requests["first_token_ns"] - r.requests["arrival_ns"])) for o, r in runs.items()
    }
    assert mean["shortest-first"] < mean["fcfs"]

    def wait_of_late_turns(result) -> float:
        late = result.requests["turn"] >= 3
        return float(result.requests["queue_ns"][late].mean() / result.requests["queue_ns"].mean())

    assert wait_of_late_turns(runs["later-turns"]) < wait_of_late_turns(runs["fcfs"])
