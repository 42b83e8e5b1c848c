"""Machines that come and go: random plans on every backend, known service times, drains, what is refused."""

from __future__ import annotations

import json
import os
import random

import numpy as np
import pytest
from kvcache_sim.engine import BOUNDARY, Engine
from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.membership.membership import Membership
from kvcache_sim.simulation import RunOptions
from kvcache_sim.tiers import TIERS
from tiered_scenario import load

ROUTERS = (
    "round-robin",
    "random",
    "least-loaded",
    "longest-prefix",
    "cache-aware",
    "power-of-two",
    "overlap-cost",
)


def random_plan(draw: random.Random, machines: int, span_s: float) -> str:
    """Return a plan as a scenario writes it: machines join, drain and are lost, also all at once."""
    serving, there, number, events, now = set(range(machines)), set(range(machines)), machines, [], 0.0
    for _ in range(draw.randint(1, 6)):
        now += draw.choice([0.0, draw.uniform(0, span_s / 3)])
        do = draw.choice(["join", "lose", "lose", "drain"])
        if do == "join":
            events.append(f"{{at: {round(now * 1e9)}ns, do: join}}")
            serving.add(number)
            there.add(number)
            number += 1
        elif able := sorted(there if do == "lose" else serving):
            machine = draw.choice(able)
            events.append(f"{{at: {round(now * 1e9)}ns, do: {do}, machine: {machine}}}")
            serving.discard(machine)
            if do == "lose":
                there.discard(machine)
    events = events or ["{at: 1s, do: join}"]
    in_flight = (
        draw.choice(["retry", "retry", "fail"]) if any("lose" in event for event in events) else "retry"
    )
    return f"fleet={{plan: [{', '.join(events)}], in_flight: {in_flight}}}"


def overrides(seed: int) -> list[str]:
    draw = random.Random(seed)
    machines = draw.randint(1, 3)
    chosen = [
        random_plan(draw, machines, 9.0),
        f"cluster.machines={machines}",
        f"workload.requests={draw.randint(16, 40)}",
        f"workload.arrivals={{process: poisson, rate_per_s: {draw.choice([4, 8, 20])}}}",
        f"replica.max_num_seqs={draw.choice([2, 4, 16])}",
        f"seed={draw.randint(0, 99)}",
    ]
    if machines > 1:
        chosen.append(f"router.policy={draw.choice(ROUTERS)}")
    if draw.random() < 0.2:
        chosen += ["tiers.cpu=null", "tiers.disk=null"]
    else:
        chosen += ["channels.cpu-to-gpu.bandwidth=300MB/s", "channels.gpu-to-cpu.bandwidth=300MB/s"]
        chosen.append(f"write.policy={draw.choice(['through', 'through', 'through', 'back'])}")
        chosen.append("tiers.gpu.capacity=160 blocks")
    if draw.random() < 0.3:
        chosen.append("workload.loop=closed")
    return chosen


class InFlight:
    """Counts how often a machine was lost while it held requests, and while KV was on its way there."""

    def __init__(self, monkeypatch) -> None:
        self.with_requests = self.with_transfers = 0
        own = Membership._lose

        def lose(membership, machine):
            replica = membership._replicas[machine]
            replica.catch_up(membership._engine.now_ns)
            moving = sum(replica.store.room(level).in_flight_blocks for level in range(replica.tiers))
            self.with_transfers += bool(moving or replica.counts()[2])
            self.with_requests += machine in membership._places.values()
            return own(membership, machine)

        monkeypatch.setattr(Membership, "_lose", lose)


def check_conserved(scenario, made) -> None:
    """Every request that arrived has one row, and every token of the trace is finished, failed or rejected."""
    rows, trace, counts = made.run.requests, made.trace, made.summary["requests"]
    assert counts["arrived"] == len(trace) == sum(counts[name] for name in STATUSES)
    assert counts["aborted"] == 0
    assert np.array_equal(rows["request"], np.arange(len(trace)))
    by_status = [int((rows["status"] == status).sum()) for status in range(len(STATUSES))]
    assert by_status == [counts[name] for name in STATUSES]
    for column, of_trace in (("input_tokens", trace.input_tokens), ("output_tokens", trace.output_tokens)):
        assert sum(int(rows[column][rows["status"] == s].sum()) for s in range(len(STATUSES))) == int(
            of_trace.sum()
        )
    lost = {
        event.machine: event.at_ns for event in scenario.settings.membership.events if event.change == "lose"
    }
    for machine, at_ns in lost.items():
        done = rows["machine"] == machine
        assert (rows["finish_ns"][done & (rows["status"] == 0)] <= at_ns).all()


def one_plan(seed: int) -> None:
    scenario = load(*overrides(seed))
    trace = read_requests(scenario)
    native = execute(scenario, trace, RunOptions())
    check_conserved(scenario, native)
    for other in (RunOptions(check="full"), RunOptions(backend="python", check="full")):
        assert execute(scenario, trace, other).summary["digest"] == native.summary["digest"]


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVSIM_EXAMPLES", "12"))))
def test_nothing_is_lost_uncounted_whatever_the_plan(seed):
    one_plan(seed)


def test_plans_hit_requests_and_transfers_in_flight(monkeypatch):
    counted = InFlight(monkeypatch)
    for seed in range(60):
        scenario = load(*overrides(seed))
        check_conserved(scenario, execute(scenario, read_requests(scenario), RunOptions()))
    assert counted.with_requests >= 15
    assert counted.with_transfers >= 10


# --- known service times -----------------------------------------------------------------------------------


def one_by_one(tmp_path, count: int, fleet: str):
    """Return the rows of equal requests that arrive at once and are served one after another."""
    path = tmp_path / "t.jsonl"
    rows = [{"timestamp": 0, "input_length": 512, "output_length": 4, "hash_ids": [n]} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"trace: {{path: {path}}}\ncache: {{enabled: false}}\nreplica: {{max_num_seqs: 1}}\n"
    scenario = scenario_from_text(text + f"tiers: {{gpu: {{capacity: 99 blocks}}}}\n{fleet}", "s", tmp_path)
    return execute(scenario, read_requests(scenario), RunOptions())


@pytest.mark.parametrize(("done", "count"), [(0, 5), (3, 8), (7, 8)])
def test_a_machine_lost_with_k_requests_in_flight(tmp_path, done, count):
    alone = one_by_one(tmp_path, 2, "").run.requests
    first, service = int(alone["first_token_ns"][0]), int(alone["finish_ns"][1] - alone["finish_ns"][0])
    lost_ns, startup_ns = done * service + service // 2, 3 * service
    plan = f"plan: [{{at: {lost_ns}ns, do: lose, machine: 0}}, {{at: {lost_ns}ns, do: join}}]"
    made = one_by_one(tmp_path, count, f"fleet: {{{plan}, startup: {startup_ns}ns}}")
    rows, begins = made.run.requests, lost_ns + startup_ns
    assert made.summary["fleet"] == {"joined": 1, "drained": 0, "lost": 1, "retried": count - done}
    for request in range(count):
        again = request - done
        before = request * service if again < 0 else begins + again * service
        assert rows["arrival_ns"][request] == 0
        assert rows["first_token_ns"][request] == before + first
        assert rows["finish_ns"][request] == before + service
        assert rows["machine"][request] == int(again >= 0)
        # the time on the lost machine and without any counts as queueing
        assert rows["queue_ns"][request] == before
    failing = one_by_one(tmp_path, count, f"fleet: {{{plan}, startup: {startup_ns}ns, in_flight: fail}}")
    counts = failing.summary["requests"]
    assert (counts["finished"], counts["failed"], counts["rejected"]) == (done, count - done, 0)
    assert (failing.run.requests["first_token_ns"][done:] == -1).all()


def test_nobody_serves_any_more(tmp_path):
    made = one_by_one(tmp_path, 5, "fleet: {plan: [{at: 1ns, do: lose, machine: 0}]}")
    assert made.summary["requests"]["failed"] == 5
    drained = one_by_one(tmp_path, 5, "fleet: {plan: [{at: 1ns, do: drain, machine: 0}]}")
    assert drained.summary["requests"]["finished"] == 5


def test_a_drained_machine_serves_what_it_has_and_gets_nothing_more():
    plan = "fleet={plan: [{at: 5s, do: drain, machine: 1}]}"
    made = execute(scenario := load(plan), read_requests(scenario), RunOptions())
    rows = made.run.requests
    there = rows["machine"] == 1
    assert there.any()
    assert (rows["arrival_ns"][there] <= 5 * 10**9).all()
    assert rows["finish_ns"][there].max() > 5 * 10**9
    assert made.summary["requests"]["finished"] == len(rows["request"])


def test_a_machine_that_joins_is_cold_and_is_used():
    base = execute(scenario := load(), read_requests(scenario), RunOptions()).summary
    plan = "fleet={plan: [{at: 8s, do: lose, machine: 0}, {at: 8s, do: join}], startup: 2s}"
    made = execute(scenario := load(plan), read_requests(scenario), RunOptions())
    rows = made.run.requests
    assert (rows["arrival_ns"][rows["machine"] == 2]).max() > 10 * 10**9
    assert made.summary["cache"]["token_hit_rate"] < base["cache"]["token_hit_rate"]
    assert made.summary["machines"]["requests"][2] > 0


def test_an_unneeded_event_changes_nothing_and_does_not_prolong_the_run():
    base = execute(scenario := load(), read_requests(scenario), RunOptions()).summary
    late = load("fleet={plan: [{at: 9h, do: lose, machine: 0}, {at: 10h, do: join}]}")
    made = execute(late, read_requests(late), RunOptions()).summary
    assert made["digest"]["results"] == base["digest"]["results"]
    assert made["simulated_s"] == base["simulated_s"]


def test_a_silent_machine_hears_nothing():
    engine, heard = Engine(2), []
    for machine in (0, 1):
        for schedule in (engine.schedule, engine.schedule_own):
            schedule(5, BOUNDARY, machine, heard.append, machine)
    engine.silence(0)
    engine.schedule(7, BOUNDARY, 0, heard.append, 0)
    assert engine.run()
    assert heard == [1, 1]


def test_tiers_of_every_machine_are_told():
    scenario = load("fleet={plan: [{at: 3s, do: join}]}")
    assert len(scenario.settings.machines) == 3
    assert [tier.name for tier in scenario.settings.machines[2].tiers] == list(TIERS)
