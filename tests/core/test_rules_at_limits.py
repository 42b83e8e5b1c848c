"""Rules of queues, of fleets and of parts of a run, each at its limit: a value that just reaches it, and the next."""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.serving.membership.scaling_policy import SCALING
from kvcache_sim.serving.membership.scaling_policy.contract import FleetState
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.simulation import simulate
from support.clusters import BLOCK, cluster
from support.product.machines import ScalingSettings
from support.product.reports import Windows, steady_from
from support.schedule_book import plain_table
from support.small_traces import trace_of


def wanted(policy, serving, starting=0, waiting=0, running=0, kv_use=0.0, now_ns=0, **settings):
    made = SCALING.make(policy, ScalingSettings(policy, 3, 1, 99, **settings))
    return made.wanted(FleetState(now_ns, serving, starting, waiting, running, kv_use, 0))


@pytest.mark.parametrize(
    ("waiting", "machines"), [(45, 10), (44, 9), (55, 10), (56, 12), (0, 0), (60, 12), (61, 13)]
)
def test_a_mean_within_a_tenth_of_its_target_keeps_the_machines(waiting, machines):
    """Ten machines at five waiting requests each: 45 to 55 keep them, beyond it is the next whole machine."""
    assert wanted("queue", 10, waiting=waiting) == machines
    # machines that start count, with nothing of the measure
    assert wanted("queue", 4, starting=6, waiting=waiting) == machines


def test_a_measure_adds_up_over_machines():
    assert wanted("requests", 2, waiting=40, running=25, tolerance=0.0) == 3
    assert wanted("requests", 2, waiting=40, running=24, tolerance=0.0) == 2
    # 0.7 of a GPU's blocks is the target: four machines at 0.7 and at 0.875
    assert [wanted("kv-use", 4, kv_use=use) for use in (0.7, 0.875)] == [4, 5]


def test_a_schedule_holds_from_its_times_on():
    times = {"schedule": ((10, 7), (20, 2))}
    assert [wanted("schedule", 1, now_ns=at, **times) for at in (0, 9, 10, 19, 20)] == [3, 3, 7, 7, 2]


def rows(count, first=0):
    """Return requests that arrive 10 ns apart, with 4 prompt tokens of which their number is cached."""
    number = np.arange(first, first + count)
    return {
        "request": number,
        "arrival_ns": number * 10,
        "finish_ns": number * 10,
        "input_tokens": np.full(count, 4),
        "cached_prefix_length_used": number % 4,
    }


@pytest.mark.parametrize(("count", "size"), [(128, 1), (129, 2), (256, 2), (257, 4)])
def test_128_windows_hold_a_run(count, size):
    windows = Windows()
    for part in np.array_split(np.arange(count), 3):  # batches in any order, the last first
        windows.add({name: values[part[::-1]] for name, values in rows(count).items()})
    assert (windows.size, len(windows.sums), windows.requests) == (size, -(-count // size), count)
    assert windows.sums[:, 1].tolist() == [4 * n for n in windows.sums[:, 0]]
    assert windows.first_arrival_ns.tolist() == [10 * size * k for k in range(len(windows.sums))]
    # the last window is left out, whole or not
    assert len(windows.hit_rates()) == len(windows.sums) - 1


def test_a_window_begins_with_its_first_arrival():
    windows = Windows()
    windows.add(rows(130))
    assert [windows.window_at(at) for at in (0, 1, 20, 21, 1280, 1281)] == [0, 1, 1, 2, 64, 65]
    unserved = rows(5) | {"finish_ns": np.array([0, -1, 5, -1, -1])}
    few = Windows()
    few.add(unserved)
    assert few.requests == 2
    each = Windows()
    each.add(rows(4) | {"arrival_ns": np.array([5, 15, 40, 45])})
    assert each.spread_arrivals().at_ns.tolist() == [5, 15, 40, 45]


def test_a_steady_part_is_found_up_to_the_middle():
    """The squared standard error is least where the change ends; behind the middle nothing has settled."""
    assert steady_from(np.array([9.0] * 3 + [1.0, 2.0] * 6)) == 3
    assert steady_from(np.array([9.0] * 8 + [1.0, 1.0] * 4)) == 8
    assert steady_from(np.array([9.0] * 9 + [1.0, 1.0] * 4)) is None
    assert steady_from(np.array([1.0] * 14 + [9.0] + [1.5] * 5)) == 0  # no mean of five windows alone
    assert steady_from(np.array([1.0] * 13 + [9.0] + [1.5] * 6)) is None
    assert steady_from(np.zeros(0)) == 0


def served(order, waiting):
    """Return the order in which prompts are served, one at a time, after one that has cached ``c``."""
    base = cluster((4_000,))
    replica = ReplicaSettings(512, 1, queue_order=order)
    machine = replace(base.machines[0], replica=replica, step_time=plain_table())
    rows = [["c", "own"], *([*row, f"own{k}"] for k, row in enumerate(waiting))]
    trace = trace_of(rows, BLOCK, None, [0, *[10**9] * len(waiting)])
    requests = simulate(replace(base, machines=(machine,)), trace).requests
    found = requests["request"][np.argsort(requests["first_token_ns"])]
    return [request - 1 for request in found.tolist()[1:]]


def test_a_request_is_passed_32_times():
    """Those with a cached prefix go first, under RAGCache's order; after 32 of them the oldest."""
    assert served("ragcache", [["z"], *[["c"]] * 40]) == [*range(1, 33), 0, *range(33, 41)]


@pytest.mark.parametrize(("before", "first"), [(255, 255), (256, 0)])
def test_the_first_256_requests_are_candidates(before, first):
    found = served("longest-prefix", [*([f"z{k}"] for k in range(before)), ["c"]])
    assert found[0] == first
    assert found.index(before) == (0 if first else 1)
