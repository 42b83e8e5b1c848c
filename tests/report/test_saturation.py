"""The state ``saturated``: against queues whose waits are known, and runs either side of their knee."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.metrics.percentiles import describe
from kvcache_sim.metrics.saturation import SampledArrivals, summarize_saturation
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.toolbox.transforms import scale
from support.product.reports import Windows

SERVICE_S = 0.1


def waits_s(arrivals_s, service_s, servers=1):
    """Return the waits of a queue, one request after another, each served by the server that is free first."""
    free_s, found = [0.0] * servers, []
    for at_s in arrivals_s:
        first = min(range(servers), key=free_s.__getitem__)
        found.append(max(free_s[first] - at_s, 0.0))
        free_s[first] = max(free_s[first], at_s) + service_s
    return np.array(found)


def state_of(arrivals_s, waits, own_s=SERVICE_S, is_open=True, servers=1):
    """Return the state of a run with these arrivals and waits (s), and ``own_s`` of TTFT besides."""
    wait, ttft = (describe(np.rint(1e9 * values).astype(np.int64)) for values in (waits, waits + own_s))
    arrival_ns = np.rint(1e9 * np.asarray(arrivals_s)).astype(np.int64)
    arrivals = SampledArrivals(arrival_ns, 1) if is_open else None
    found = summarize_saturation(wait, ttft, 1000 * own_s / 10, arrivals, servers)
    return found["saturated"], found["saturation"]


def poisson(load, count=9000, seed=1):
    return np.cumsum(np.random.default_rng(seed).exponential(SERVICE_S / load, count))


@pytest.mark.parametrize(
    ("load", "saturated"),
    [(0.3, False), (0.5, False), (0.6, False), (0.85, True), (0.95, True), (1.2, True), (3, True)],
)
def test_a_queue_of_one_server_is_saturated_where_waits_pass_the_service_time(load, saturated):
    """M/D/1: the mean wait is load / (2 (1 - load)) services, so it passes one service at 2/3."""
    arrivals = poisson(load)
    waits = waits_s(arrivals, SERVICE_S)
    found, figures = state_of(arrivals, waits)
    assert found is saturated
    if load < 0.9:
        assert waits.mean() == pytest.approx(SERVICE_S * load / (2 * (1 - load)), rel=0.15)
    assert figures["served_per_s"] == pytest.approx(1 / SERVICE_S, rel=1e-3)
    assert figures["arrived_per_s"] == pytest.approx(load / SERVICE_S, rel=0.05)
    if not saturated:
        assert figures["holds_per_s"] is None
        assert figures["sentence"] == ""
        return
    holds = figures["holds_per_s"]
    assert 0.6 / SERVICE_S < holds < min(0.85, load) / SERVICE_S
    for factor, expected in ((0.95, False), (1.05, True)):  # the rate that would hold does
        faster = arrivals * figures["arrived_per_s"] / (factor * holds)
        assert state_of(faster, waits_s(faster, SERVICE_S))[0] is expected


@pytest.mark.parametrize("servers", [4, 16])
def test_slots_of_a_batch_are_servers_of_the_queue(servers):
    """A request waits for one of many slots at a higher load than for one server: that rate would hold."""
    service_s = servers * SERVICE_S
    arrivals = poisson(1.5)
    found, figures = state_of(arrivals, waits_s(arrivals, service_s, servers), servers=servers)
    assert found
    assert figures["served_per_s"] == pytest.approx(1 / SERVICE_S, rel=0.01)
    holds = figures["holds_per_s"]
    assert holds > state_of(arrivals, waits_s(arrivals, service_s, servers))[1]["holds_per_s"]
    for factor, expected in ((0.95, False), (1.05, True)):
        faster = arrivals * figures["arrived_per_s"] / (factor * holds)
        waits = waits_s(faster, service_s, servers)
        assert state_of(faster, waits, servers=servers)[0] is expected


@pytest.mark.parametrize("load", [2.0, 4.0])
def test_requests_of_one_instant_hold_at_the_rate_of_service(load):
    """Ten together wait 4.5 services on average at any rate, so only what is beyond counts."""
    arrivals = np.repeat(np.arange(400) * 10 * SERVICE_S / load, 10)
    found, figures = state_of(arrivals, waits_s(arrivals, SERVICE_S))
    assert found
    assert figures["served_per_s"] == pytest.approx(1 / SERVICE_S, rel=1e-2)
    assert figures["holds_per_s"] == pytest.approx(1 / SERVICE_S, rel=0.05)
    calm = np.repeat(np.arange(400) * 20 * SERVICE_S, 10)
    found, figures = state_of(calm, waits_s(calm, SERVICE_S))
    assert found
    assert "arrive together" in figures["sentence"]


def test_demand_beyond_service_is_saturated_though_waiting_is_a_small_part_of_a_long_ttft():
    arrivals = poisson(1.3)
    waits = waits_s(arrivals, SERVICE_S)
    found, figures = state_of(arrivals, waits, own_s=10 * waits.mean())
    assert not waits.mean() > 0.5 * (11 * waits.mean())
    assert found
    assert figures["holds_per_s"] == pytest.approx(1 / SERVICE_S, rel=1e-3)
    light = poisson(0.8)
    assert not state_of(light, waits_s(light, SERVICE_S), own_s=1)[0]


def test_waits_shorter_than_a_step_are_of_no_queue():
    arrivals = poisson(0.2)
    assert not state_of(arrivals, np.full(len(arrivals), 0.009), own_s=0.001 * 90)[0]
    found = summarize_saturation(*(describe(np.full(9, n)) for n in (8, 9)), 10e-6, None)
    assert not found["saturated"]


def test_bursts_with_idle_time_between_them():
    """A burst in which most requests wait is saturated, however long the machine rests afterwards."""
    burst = np.concatenate([start + 0.02 * np.arange(100) for start in range(0, 4000, 400)])
    found, figures = state_of(burst, waits_s(burst, SERVICE_S))
    assert found
    assert figures["holds_per_s"] < figures["arrived_per_s"] < figures["served_per_s"]
    few = np.concatenate(
        [np.arange(900.0), 900 + 0.001 * np.arange(300)]
    )  # a quarter waits for most of it all
    found, figures = state_of(few, waits_s(few, SERVICE_S))
    assert found
    for factor, expected in ((0.95, False), (1.05, True)):  # the median waits at no rate
        faster = few * figures["arrived_per_s"] / (factor * figures["holds_per_s"])
        assert state_of(faster, waits_s(faster, SERVICE_S))[0] is expected
    rare = np.concatenate([np.arange(900.0), 900 + 0.01 * np.arange(100)])  # a tenth of the requests wait
    assert not state_of(rare, waits_s(rare, SERVICE_S))[0]


def test_requests_that_come_at_once_or_wait_for_others_have_no_rate():
    together = np.zeros(50)
    for figures in (
        state_of(together, waits_s(together, SERVICE_S))[1],
        state_of(poisson(1.5), waits_s(poisson(1.5), SERVICE_S), is_open=False)[1],
    ):
        assert figures["arrived_per_s"] is figures["served_per_s"] is figures["holds_per_s"] is None
        assert figures["sentence"].startswith("clients wait (mean wait ")
    assert not state_of(np.zeros(0), np.zeros(0))[0]
    assert not state_of([5.0], np.zeros(1))[0]


def test_windows_of_a_stream_give_the_same_state():
    arrivals = poisson(1.3, count=30_000)
    waits = waits_s(arrivals, SERVICE_S)
    windows, arrival_ns = Windows(), np.rint(1e9 * arrivals).astype(np.int64)
    for start in range(0, len(arrivals), 1000):
        own = np.arange(start, start + 1000)
        columns = {"request": own, "arrival_ns": arrival_ns[own], "finish_ns": arrival_ns[own] + 1}
        windows.add({**columns, "input_tokens": own, "cached_prefix_length_used": own})
    wait, ttft = (describe(np.rint(1e9 * values).astype(np.int64)) for values in (waits, waits + 0.1))
    spread = windows.spread_arrivals()
    assert spread.each > 1
    found = summarize_saturation(wait, ttft, 1.0, spread)["saturation"]
    exact = state_of(arrivals, waits)[1]
    for name in ("arrived_per_s", "served_per_s"):
        assert found[name] == pytest.approx(exact[name], rel=0.03)


@pytest.mark.parametrize(("weight", "lanes"), [(1, 3), (4, 1), (4, 2)])
def test_an_arrival_of_several_requests_takes_as_many_of_the_servers(weight, lanes):
    arrivals = np.cumsum(np.random.default_rng(2).exponential(SERVICE_S / lanes / 0.9, 4000))
    wait = describe(np.rint(1e9 * waits_s(arrivals, SERVICE_S, lanes)).astype(np.int64))
    known = SampledArrivals(np.rint(1e9 * arrivals).astype(np.int64), weight)
    found = summarize_saturation(wait, wait, 1.0, known, lanes * weight + 0.4 * weight)["saturation"]
    assert found["served_per_s"] == pytest.approx(lanes * weight / SERVICE_S, rel=0.01)
    assert found["arrived_per_s"] == pytest.approx(0.9 * lanes * weight / SERVICE_S, rel=0.05)


@pytest.mark.parametrize("servers", [1.0, 2.4, 3.0])
def test_a_burst_is_served_by_as_many_servers_as_are_whole(servers):
    """Of a thousand requests at once on n servers the mean wait is (1000 / n - 1) / 2 services."""
    arrivals = np.append(np.zeros(1000), [10.0])
    waits = waits_s(arrivals, SERVICE_S, round(servers))
    served = state_of(arrivals, waits, servers=servers)[1]["served_per_s"]
    assert served == pytest.approx(round(servers) / SERVICE_S, rel=0.01)


def test_requests_of_one_instant_have_no_rate_of_arrival():
    assert state_of(np.zeros(9), np.ones(9))[1]["arrived_per_s"] is None
    many = state_of(np.arange(100_001)[::-1] / 100, np.ones(100_001))[1]
    assert many["arrived_per_s"] == pytest.approx(100)


#: Workload, arrivals a second, machines, and the speeds of arrivals clearly below and above what they serve.
RUNS = {
    "one machine": ("few-shot, requests: 900", 10, "replica: {max_num_seqs: 256}", 3, 18),
    "three machines": ("diverse, requests: 900", 10, "cluster: {machines: 3}", 6, 60),
    "slots": ("few-shot, requests: 500, output_tokens: 40", 1, "replica: {max_num_seqs: 2}", 2, 9),
    "decode machines": (
        "diverse, requests: 500, output_tokens: 60",
        *(1, "cluster: {machines: 3}\npools: {prefill: 2, decode: 1}\nreplica: {max_num_seqs: 3}", 2, 12),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_either_side_of_their_knee(name):
    kind, per_s, machines, below, above = RUNS[name]
    text = f"workload: {{kind: {kind}, arrivals: {{process: poisson, rate_per_s: {per_s}}}}}\n{machines}"
    scenario = scenario_from_text(text, "s", Path.cwd())
    trace = read_requests(scenario)

    def summary_at(speed):
        return execute(scenario, scale(trace, Fraction(speed)), RunOptions()).summary

    assert not summary_at(below)["saturated"]
    crowded = summary_at(above)
    assert crowded["saturated"]
    figures = crowded["saturation"]
    ratio = figures["holds_per_s"] / figures["arrived_per_s"]
    assert ratio < 1
    for factor, expected in ((0.75, False), (1.33, True)):  # a quarter off at most
        speed = Fraction(above * ratio * factor).limit_denominator(1000)
        assert summary_at(speed)["saturated"] is expected
    assert f"about {figures['holds_per_s']:.3g}" in figures["sentence"]


def test_rejected_prompts_do_not_count_as_arrivals():
    text = "workload: {kind: conversational, requests: 300}"
    prompts = read_requests(scenario_from_text(text, "s", Path.cwd())).input_tokens
    text += f"\nreplica: {{max_model_len: {int(np.median(prompts))}}}"
    scenario = scenario_from_text(text, "s", Path.cwd())
    done = execute(scenario, read_requests(scenario), RunOptions())
    served = done.run.requests["arrival_ns"][done.run.requests["status"] == 0]
    assert 50 < len(served) < 250
    rate = done.summary["saturation"]["arrived_per_s"]
    assert rate == pytest.approx((len(served) - 1) * 1e9 / (served.max() - served.min()))


@pytest.mark.parametrize(
    ("wait_ms", "step_ms", "saturated"), [(5, 1, False), (5.01, 1, True), (5.01, 5.01, False)]
)
def test_waits_saturate_beyond_half_of_ttft_and_a_step(wait_ms, step_ms, saturated):
    wait, ttft = ({"avg": ms, "p50": ms} for ms in (wait_ms, 10.0))
    assert summarize_saturation(wait, ttft, step_ms, None)["saturated"] is saturated
