"""Every policy of KV movement gives the same result in core and specification, and changes a figure as
expected."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import simulate
from pools import pools, requests
from small_traces import trace_of
from support.agreement import agree
from support.clusters import cluster, moving, reading_each_other
from support.lookahead import assert_same_by_the_clock
from support.traces import random_trace

TIERS = (90, 60, 400)


def run(settings: ClusterSettings, seed: int = 8):
    return simulate(settings, random_trace(seed))


def sent(result, edge: str) -> int:
    return sum(
        v for k, v in result.counters.items() if k.startswith(f"channel.{edge}") and k.endswith(".bytes")
    )


CHOICES: list[dict[str, Any]] = [
    {"write": {"gpu": "through-sync"}},
    {"write": {"gpu": "through", "cpu": "through"}},
    {"write": {"gpu": "selective", "cpu": "selective"}},
    {"exclusive": frozenset({"gpu"})},
    {"exclusive": frozenset({"gpu", "cpu"})},
    {"fetch": "never"},
    {"fetch": "cheaper"},
    {"fetch": "split"},
    {"fetch": "best-effort", "prefetch": "queued"},
    {"fetch": "wait", "prefetch": "queued"},
    {"fetch": "timeout", "prefetch": "queued", "fetch_timeout_ns": 3_000_000},
    {"prefetch": "queued"},
    {"prefetch": "session", "prefetch_lead_ns": 50_000_000},
    {"cache": {"discard_on_finish": True}},
    {"cache": {"scheduler_aware_window": 4}},
]


def named(choice):
    """The choice's name in the test's, the same in every process."""
    return "-".join(
        f"{k}={'+'.join(sorted(v)) if isinstance(v, frozenset) else v}" for k, v in choice.items()
    )


@pytest.mark.parametrize("choice", CHOICES, ids=named)
def test_every_choice_agrees(choice):
    agree(moving(**choice), random_trace(8))


@pytest.mark.parametrize("tiers", [(60, 1, 1), (60, 3), (70, 9, 30)])
def test_everything_together_at_tiny_tiers(tiers):
    """Preemption, chunks, write-through, prefetch, remote reads and eviction at once (I2–I5, I7, I9)."""
    settings = reading_each_other(tiers, machines=2, prefetch="queued", exclusive=frozenset({"gpu"}))
    write = {"gpu": "through", "cpu": "through"}
    settings = replace(settings, movement=replace(settings.movement, write=write))
    result = agree(settings, random_trace(9))
    edges = sum(n for name, n in result.counters.items() if name.startswith("edge."))
    channels = sum(
        n for name, n in result.counters.items() if name.startswith("channel.") and "bytes" in name
    )
    assert edges == channels > 0, "I9: what the edges moved is what the channels carried"


def test_writing_through_moves_the_writes_from_eviction_to_commit():
    back, through, chosen = (run(moving(write={"gpu": how})) for how in ("back", "through", "selective"))
    assert sent(through, "gpu->cpu") > sent(back, "gpu->cpu") > sent(chosen, "gpu->cpu") > 0
    capacities = [int(r.requests["fetch_room_ns"].sum()) for r in (back, through)]
    assert capacities[1] < capacities[0], "blocks with a lower copy are freed at once"


def test_a_synchronous_write_delays_the_batch():
    behind, inline = (run(moving(write={"gpu": how})) for how in ("through", "through-sync"))
    assert inline.requests["finish_ns"].max() > behind.requests["finish_ns"].max()
    assert inline.requests["fetch_room_ns"].sum() > behind.requests["fetch_room_ns"].sum()


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


def test_writing_through_to_disk_fills_it_earlier():
    back, through = (run(moving(write={"cpu": how})) for how in ("back", "through"))
    assert sent(through, "cpu->disk") > sent(back, "cpu->disk")


def test_more_uses_before_a_write_write_less():
    settings = [moving((90, 400), write={"gpu": "selective"}, write_selective_uses=n) for n in (2, 3)]
    writes = [sent(run(one), "gpu->cpu") for one in settings]
    assert writes[0] > writes[1] > 0


def test_an_exclusive_edge_leaves_no_copy_behind():
    """Both tiers then hold different blocks, so more is found; what comes down again must be written
    again."""
    inclusive, exclusive = run(moving((90, 60))), run(moving((90, 60), exclusive=frozenset({"gpu"})))
    hits = [int(r.requests["cached_prefix_length_used"].sum()) for r in (inclusive, exclusive)]
    assert hits[1] >= hits[0]
    assert sent(exclusive, "gpu->cpu") > sent(inclusive, "gpu->cpu")


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


def test_split_loads_no_more_than_all_and_no_less_than_nothing():
    settings = [slow(moving((90, 400), fetch=f), "cpu->gpu", 12) for f in ("never", "split", "always")]
    loaded = [sent(run(one), "cpu->gpu") for one in settings]
    assert loaded[0] == 0 < loaded[1] < loaded[2]


def test_mean_ttft_falls_steeply_with_bandwidth_and_then_flattens():
    """The shape of FAST'25 (Mooncake): faster links help less and less."""
    means = []
    for factor in (64, 16, 4, 1):
        result = run(slow(moving((90, 400)), "cpu->gpu", factor))
        means.append(float(np.mean(result.requests["first_token_ns"] - result.requests["arrival_ns"])))
    falls = [a - b for a, b in pairwise(means)]
    assert falls[0] > falls[1] > falls[2] >= 0


def from_disk(**movement: Any):
    """A run with a slow disk and pauses long enough to bring something up."""
    settings = slow(moving((60, 120, 800), **movement), "disk->cpu", 4)
    trace = random_trace(8)
    return simulate(settings, replace(trace, arrival_ns=trace.arrival_ns * 20)).requests


def test_prefetching_hides_the_disk():
    plain, queued = from_disk(), from_disk(prefetch="queued")
    session = from_disk(prefetch="session", prefetch_lead_ns=10**9)
    assert queued["fetch_disk_ns"].sum() < plain["fetch_disk_ns"].sum()
    assert session["fetch_disk_ns"].sum() < plain["fetch_disk_ns"].sum()
    assert session["cached_disk_tokens"].sum() < plain["cached_disk_tokens"].sum(), "it is on the cpu by then"


def test_waiting_recomputes_least_and_best_effort_most():
    computed = {
        policy: int(
            from_disk(fetch=policy, prefetch="queued", fetch_timeout_ns=40_000_000)[
                "num_tokens_actually_prefilled"
            ].sum()
        )
        for policy in ("wait", "timeout", "best-effort")
    }
    assert computed["wait"] < computed["timeout"] < computed["best-effort"]


def test_blocks_of_waiting_requests_are_evicted_last():
    """CachedAttention's lookahead window over the queue: with it more is found, on each tier that is full."""
    for tiers in ((90,), (90, 60), TIERS):
        found = [
            int(run(moving(tiers, {"scheduler_aware_window": n})).requests["cached_prefix_length_used"].sum())
            for n in (0, 4)
        ]
        assert found[1] > found[0] * 1.05


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


def test_discarding_at_the_finish_leaves_nothing_to_reuse():
    kept, dropped = run(moving()), run(moving(cache={"discard_on_finish": True}))
    assert (
        dropped.requests["cached_prefix_length_used"].sum() < kept.requests["cached_prefix_length_used"].sum()
    )


def ordered(order: str, seed: int = 11):
    settings = cluster((90, 60))
    machine = replace(settings.machines[0], replica=replace(settings.machines[0].replica, queue_order=order))
    return replace(settings, machines=(machine,))


@pytest.mark.parametrize("order", ["longest-prefix", "shortest-first", "later-turns", "ragcache"])
def test_every_queue_order_agrees(order):
    agree(ordered(order), random_trace(8))


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


OWN = """
class Never:
    def reuse(self, plan):
        return plan.ready

class DeepFirst:
    def key(self, waiting):
        return (-waiting.tokens,)

class Quiet:
    writes_back = False
    at_commit = False
    delays_step = False

    def __init__(self, upper, settings):
        pass

    def committed(self, store, lease, blocks, now_ns):
        return None

    def used(self, store, lease, now_ns):
        return None

    def arrived(self, store, move, now_ns):
        return None
"""


def test_policies_come_from_a_file_without_touching_the_package(tmp_path: Path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    own = assert_same_by_the_clock(moving(fetch=f"{file}:Never"), random_trace(8))
    assert own.requests["cached_cpu_tokens"].sum() == 0
    assert own.digest_events == run(moving(fetch="never")).digest_events
    quiet = assert_same_by_the_clock(moving(write={"gpu": f"{file}:Quiet"}), random_trace(8))
    assert sent(quiet, "gpu->cpu") == 0
    deep = assert_same_by_the_clock(ordered(f"{file}:DeepFirst"), random_trace(8))
    assert deep.digest_events != run(ordered("fcfs")).digest_events
