"""Fleets that grow and shrink by a policy: the rules, known times and machine-seconds, caches emptied."""

import json
import math
import os
import random
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.tiers import scaled_fleet
from kvcache_sim.report.pictures.fleet import scaled
from kvcache_sim.scenario.cost import cost_of
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.membership.scaling_policy import SCALING
from kvcache_sim.serving.membership.scaling_policy.contract import FleetState
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings
from kvcache_sim.simulation import RunOptions
from support.conserved import check_conserved
from support.lookahead import by_the_clock
from support.tiered_scenario import load

S = 10**9


def wanted(policy, state, **own):
    return SCALING.make(policy, ScalingSettings(policy, 1, 1, 99, **own)).wanted(state)


def state(serving=4, starting=0, waiting=0, running=0, kv_use=0.0, now_ns=0, arrived=0):
    return FleetState(now_ns, serving, starting, waiting, running, kv_use, arrived)


@pytest.mark.parametrize(
    ("policy", "own", "given", "machines"),
    [
        ("queue", {}, state(waiting=20), 4),
        ("queue", {}, state(waiting=22), 4),  # 10 % off is near enough
        ("queue", {}, state(waiting=23), 5),
        ("queue", {}, state(waiting=17), 4),  # ceil(3.4)
        ("queue", {}, state(waiting=15), 3),
        ("queue", {}, state(waiting=0), 0),
        ("queue", {}, state(waiting=22, serving=2, starting=2), 4),
        ("queue", {"tolerance": 0.0}, state(waiting=21), 5),
        ("requests", {}, state(waiting=100, running=64), 6),
        ("requests", {"target": 2.5}, state(running=25), 10),
        ("kv-use", {}, state(kv_use=0.9), 6),  # 4 x .9 / .7 = 5.14
        ("kv-use", {}, state(kv_use=0.9, starting=1), 5),  # within a tenth of five
        ("kv-use", {"target": 0.5}, state(kv_use=0.25), 2),
        ("schedule", {"schedule": ((5, 2), (9, 7))}, state(now_ns=4), 1),
        ("schedule", {"schedule": ((5, 2), (9, 7))}, state(now_ns=5), 2),
        ("schedule", {"schedule": ((5, 2), (9, 7))}, state(now_ns=99), 7),
    ],
)
def test_how_many_machines_a_policy_wants(policy, own, given, machines):
    assert wanted(policy, given, **own) == machines


def test_the_rule_of_the_autoscaler_written_again():
    draw = random.Random(7)
    for _ in range(500):
        target, tolerance = draw.randint(1, 40), Fraction(draw.randint(0, 5), 10)
        given = state(draw.randint(1, 9), draw.randint(0, 4), draw.randint(0, 300), draw.randint(0, 300))
        machines = given.serving + given.starting
        mean = Fraction(given.waiting, machines)
        near = abs(mean / target - 1) <= tolerance
        expected = machines if near else math.ceil(machines * (mean / target))
        assert wanted("queue", given, target=float(target), tolerance=float(tolerance)) == expected


# --- known times -------------------------------------------------------------------------------------------


def at_times(tmp_path, rows, fleet, more=""):
    """Return the run of requests of one prompt of four blocks each: (second, id of the first block)."""
    path = tmp_path / "t.jsonl"
    lines = [
        {
            "timestamp": s * 1000,
            "input_length": 2048,
            "output_length": 2,
            "hash_ids": [n, n + 1, n + 2, n + 3],
        }
        for s, n in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = f"trace: {{path: {path}}}\ntiers: {{gpu: {{capacity: 99 blocks}}}}\nfleet: {fleet}\n{more}"
    scenario = scenario_from_text(text, "s", tmp_path)
    return scenario, by_the_clock(
        lambda: execute(scenario, read_requests(scenario), RunOptions(check="full"))
    )


def test_an_autoscaler_reads_what_engines_published_last(tmp_path):
    """Sixty requests arrive a millisecond before the decision: no schedule has left them waiting yet."""
    fleet = "{startup: 2s, scaling: {policy: queue, most: 2, interval: 1s}}"
    _, runs = at_times(tmp_path, [(0.999, 4 * n) for n in range(60)], fleet)
    assert runs[0].summary["fleet"]["changes"][0]["s"] == 2.0


SCHEDULE = (
    "{startup: 2s, scaling: {policy: schedule, most: 3, interval: 1s, hold: 0s, "
    "schedule: [{at: 10s, machines: 3}, {at: 30s, machines: 1}, {at: 40s, machines: 2}]%s}}"
)


def test_machine_seconds_of_a_schedule(tmp_path):
    scenario, runs = at_times(
        tmp_path, [(4, 0), (50, 0)], SCHEDULE % "", "cost: {gpu_hour: 3600, gpus_per_machine: 2}"
    )
    made = runs[0]
    assert [tuple(row.values()) for row in made.summary["fleet"]["changes"]] == [
        (10.0, "ordered", 1),
        (10.0, "ordered", 2),
        (12.0, "serves", 1),
        (12.0, "serves", 2),
        (30.0, "drains", 2),
        (30.0, "off", 2),
        (30.0, "drains", 1),
        (30.0, "off", 1),
        (40.0, "ordered", 1),
        (42.0, "serves", 1),
    ]
    end_ns = int(made.run.requests["finish_ns"].max())
    # machine 0 from the first arrival on, two for 20 s, one from 40 s to the end
    paid_s = ((end_ns - 4 * S) + 2 * 20 * S + (end_ns - 40 * S)) / 1e9
    assert made.summary["fleet"]["machine_s"] == pytest.approx(paid_s, abs=1e-9)
    assert cost_of(scenario, made.summary)["total"] == pytest.approx(2 * paid_s)
    assert (made.summary["fleet"]["ordered"], made.summary["fleet"]["released"]) == (3, 2)
    assert len({run.summary["digest"]["results"] + run.summary["digest"]["events"] for run in runs}) == 1


def test_a_machine_that_comes_again_is_empty(tmp_path):
    """Round robin begins anew at each change: 13 and 14 s go to machines 0 and 1, 43 and 44 s again."""
    rows = [(4, 0), (13, 9), (14, 0), (15, 9), (16, 9), (17, 0), (43, 0), (44, 0)]
    _, runs = at_times(tmp_path, rows, SCHEDULE % "")
    for made in runs:
        found = made.run.requests
        assert found["machine"].tolist() == [0, 0, 1, 2, 0, 1, 0, 1]
        assert (found["cached_prefix_length_used"] > 0).tolist() == [0, 0, 0, 0, 1, 1, 1, 0]


def test_a_machine_that_comes_copies_what_a_peer_was_asked_for_last(tmp_path):
    rows = [(4, 0), (5, 20), (6, 40), (18, 40), (19, 40), (20, 20), (21, 0), (22, 0), (23, 20)]
    warm = ", warmup: {tokens: 4096, bandwidth: 2147483648B/s}"
    _, runs = at_times(tmp_path, rows, SCHEDULE % warm)
    for made in runs:
        found, fleet = made.run.requests, made.summary["fleet"]
        # eight blocks each: all of 40 and 20, nothing of 0, for two machines
        assert fleet["warmed_blocks"] == 16
        block_s = 512 * 131072 / 2147483648
        serves = [own["s"] for own in fleet["changes"] if own["change"] == "serves"]
        assert serves[:2] == [pytest.approx(12 + 8 * block_s, abs=1e-6)] * 2
        assert found["machine"].tolist() == [0, 0, 0, 0, 1, 2, 0, 1, 2]
        assert (found["cached_prefix_length_used"] > 0).tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 1]


def test_demand_that_recurs_within_the_hold_removes_no_machine(tmp_path):
    times = "schedule: [{at: 10s, machines: 2}, {at: 12s, machines: 1}, {at: 14s, machines: 2}, {at: 20s, machines: 1}]"
    fleet = f"{{scaling: {{policy: schedule, most: 3, interval: 1s, hold: 5s, {times}}}}}"
    _, runs = at_times(tmp_path, [(4, 0), (40, 0)], fleet)
    changes = [tuple(row.values()) for row in runs[0].summary["fleet"]["changes"]]
    # the last time two were wanted is 19 s: five seconds later that still counts, six later not
    assert changes == [(10.0, "ordered", 1), (10.0, "serves", 1), (25.0, "drains", 1), (25.0, "off", 1)]


def test_starting_machines_are_cancelled_first_and_drains_end_with_the_last_request(tmp_path):
    times = "schedule: [{at: 10s, machines: 3}, {at: 13s, machines: 4}, {at: 14s, machines: 2}]"
    fleet = f"{{startup: 2s, scaling: {{policy: schedule, most: 4, interval: 1s, hold: 0s, {times}}}}}"
    rows = [(12.9999, 0), (13.9999, 5), (13.9999, 6), (13.9999, 7), (13.9999, 8)]
    _, runs = at_times(tmp_path, rows, fleet)
    made = runs[0]
    changes = [tuple(row.values()) for row in made.summary["fleet"]["changes"]]
    assert changes[4:7] == [(13.0, "ordered", 3), (14.0, "off", 3), (14.0, "drains", 2)]
    last = made.run.requests["finish_ns"][made.run.requests["machine"] == 2].max()
    assert changes[7:] == [(last / 1e9, "off", 2)]


# --- whatever happens --------------------------------------------------------------------------------------


def drawn(seed):
    draw = random.Random(seed)
    policy = draw.choice(["queue", "requests", "kv-use"])
    target = {"queue": 2, "requests": draw.choice([2, 4]), "kv-use": 0.3}[policy]
    warm = draw.choice(["", ", warmup: {tokens: 5000}"])
    first = draw.randint(1, 2)
    return (
        f"fleet={{startup: {draw.randint(0, 3)}s, scaling: {{policy: {policy}, target: {target}, least: 1, most: 4, "
        f"interval: {draw.choice([500, 1000])}ms, hold: {draw.choice([0, 1, 3])}s{warm}}}}}",
        f"cluster.machines={first}",
        f"workload.requests={draw.randint(20, 35)}",
        f"workload.arrivals={{process: poisson, rate_per_s: {draw.choice([4, 8])}}}",
        f"router.policy={draw.choice(['round-robin', 'cache-aware', 'least-loaded', 'power-of-two'])}",
        f"write.policy={draw.choice(['through', 'back'])}",
        f"seed={draw.randint(0, 99)}",
        *(["workload.loop=closed"] if draw.random() < 0.4 else []),
    )


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVSIM_EXAMPLES", "3"))))
def test_nothing_is_lost_at_any_scale(seed):
    scenario = load(*drawn(seed))
    trace = read_requests(scenario)
    made = by_the_clock(lambda: execute(scenario, trace, RunOptions(check="full")))
    assert len({run.summary["digest"]["results"] + run.summary["digest"]["events"] for run in made}) == 1
    assert len({json.dumps(run.summary["fleet"]) for run in made}) == 1
    check_conserved(scenario, made[0])
    rows = made[0].run.requests
    first_ns, end_ns = int(rows["arrival_ns"].min()), int(rows["finish_ns"].max())
    standing = {m: "serves" for m in range(scenario.settings.membership.scaling.first)}
    since, paid_ns = dict.fromkeys(standing, first_ns), 0
    spans = {m: [[0, None]] for m in standing}
    for row in made[0].summary["fleet"]["changes"]:
        at_ns, what, machine = round(row["s"] * 1e9), row["change"], row["machine"]
        standing[machine] = what
        if what == "ordered":
            since[machine] = at_ns
        elif what == "serves":
            spans.setdefault(machine, []).append([at_ns, None])
        elif what == "drains":
            spans[machine][-1][1] = at_ns
        else:
            paid_ns += max(at_ns - max(since.pop(machine), first_ns), 0)
        paid = [own for own in standing.values() if own != "off"]
        assert "serves" in standing.values()
        assert len(paid) <= 4
    paid_ns += sum(end_ns - max(at_ns, first_ns) for at_ns in since.values())
    assert made[0].summary["fleet"]["machine_s"] == pytest.approx(paid_ns / 1e9, abs=1e-6)
    # requests were only sent to machines that served at that time
    for machine, arrival in zip(rows["machine"].tolist(), rows["arrival_ns"].tolist(), strict=True):
        assert any(a <= arrival and (b is None or arrival <= b) for a, b in spans[machine])


def test_explain_and_the_chart_show_the_changes():
    scenario = load(*drawn(3))
    made = execute(scenario, read_requests(scenario), RunOptions())
    case = Case(SimpleNamespace(run=made.run, summary=made.summary, requests=made.run.requests))
    case.__dict__["scenario"] = scenario
    fleet = made.summary["fleet"]
    assert f"{fleet['ordered']} ordered, {fleet['released']} released" in scaled_fleet(case)
    assert len(scaled(case.run)) == len(fleet["changes"])
    still = load()
    case.__dict__["scenario"] = still
    assert scaled_fleet(case) is None


def test_a_machine_that_drains_is_in_service_no_longer():
    changes = [{"change": change} for change in ("ordered", "serves", "drains", "ordered", "serves", "off")]
    fleet = {"changes": changes, "ordered": 2, "released": 1, "machine_s": 15.0}
    rows = {"arrival_ns": np.array([0]), "finish_ns": np.array([5 * S])}
    scaled_by = SimpleNamespace(membership=SimpleNamespace(scaling=ScalingSettings("queue", 1, 1, 4)))
    case = SimpleNamespace(
        run=SimpleNamespace(summary={"fleet": fleet}, requests=rows),
        scenario=SimpleNamespace(settings=scaled_by),
    )
    said = "kept 1 to 2 machines in service: 2 ordered, 1 released, 15 machine-seconds, 75.0 % of keeping 4."
    assert scaled_fleet(case).endswith(said)


# --- caches emptied ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("semantics", ["tree", "vllm", "sglang"])
@pytest.mark.parametrize("machine", [None, 0, 1])
def test_emptied_caches_have_nothing(tmp_path, semantics, machine):
    """Two machines in turns; at 6 s the caches of one or both are emptied."""
    which = "" if machine is None else f", machine: {machine}"
    rows = [(1, 0), (2, 0), (3, 0), (4, 0), (7, 0), (8, 0), (9, 0), (10, 0)]
    more = f"cache: {{semantics: {semantics}}}\ncluster: {{machines: 2}}\nrouter: {{policy: round-robin}}"
    _, runs = at_times(tmp_path, rows, f"{{plan: [{{at: 6s, do: flush{which}}}]}}", more)
    hits = [False, False, True, True, machine == 1, machine == 0, True, True]
    for made in runs:
        assert (made.run.requests["cached_prefix_length_used"] > 0).tolist() == hits
        assert made.summary["fleet"]["flushes"] == 1
        # vLLM's pool keeps two copies of a last block that was computed again
        each = 5 if semantics == "vllm" else 4
        assert made.summary["fleet"]["blocks_lost"] == each * (2 if machine is None else 1)


@pytest.mark.parametrize("semantics", ["vllm", "sglang"])
def test_an_engine_at_work_refuses_to_be_emptied(tmp_path, semantics):
    more = f"cache: {{semantics: {semantics}}}"
    _, runs = at_times(tmp_path, [(1, 0), (6, 8), (8, 0)], "{plan: [{at: 6001ms, do: flush}]}", more)
    for made in runs:
        assert made.summary["fleet"]["blocks_lost"] == 0
        assert made.run.requests["cached_prefix_length_used"][2] > 0


def test_what_running_requests_hold_stays():
    plan = "fleet={plan: [{at: 4s, do: flush}, {at: 8s, do: flush}]}"
    few = "workload.requests=30"
    scenario = load(plan, few)
    made = by_the_clock(lambda: execute(scenario, read_requests(scenario), RunOptions(check="full")))
    assert len({run.summary["digest"]["results"] + run.summary["digest"]["events"] for run in made}) == 1
    base = execute(s := load(few), read_requests(s), RunOptions()).summary
    assert made[0].summary["tokens"]["cached"] < base["tokens"]["cached"]
