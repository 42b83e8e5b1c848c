"""Machines that come and go: random plans, known service times, drains, what is refused."""

import json
import os
import random

import pytest
from fleet_runs import at_times
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions, simulate
from support.agreement import columns
from support.conserved import check_conserved
from support.lookahead import by_the_clock
from support.tiered_scenario import load

ROUTERS = (
    "round-robin",
    "random",
    "least-loaded",
    "longest-prefix",
    "cache-aware",
    "power-of-two",
    "overlap-cost",
)


def failing(draw: random.Random, machines: int, span_s: float) -> list[str]:
    """Return copies lost and channels slowed, of machines that are there from the start."""
    found = []
    for _ in range(draw.randint(0, 4)):
        at, channel = round(draw.uniform(0, span_s) * 1e9), draw.choice(["cpu-to-gpu", "gpu-to-cpu"])
        slow = f"do: slow, channel: {channel}, share: {draw.choice([0, 0.1, 0.5])}, lasts: {draw.randint(1, 3000)}ms"
        one = f"machine: {draw.randrange(machines)}, "
        found.append(f"{{at: {at}ns, {draw.choice(['', one])}{slow}}}")
    return found


def random_plan(draw: random.Random, machines: int, span_s: float, tiers: bool) -> str:
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
    events += failing(draw, machines, span_s) if tiers else []
    in_flight = (
        draw.choice(["retry", "retry", "fail"]) if any("lose" in event for event in events) else "retry"
    )
    faults = ""
    if tiers and draw.random() < 0.6:
        kinds = [f"{{do: lose-tier, tier: {draw.choice(['cpu', 'disk'])}, mtbf: {draw.randint(1, 6)}s}}"]
        kinds += ["{do: lose, mtbf: 20s, repair: 1s}"] if draw.random() < 0.5 else []
        kinds += ["{do: slow, channel: disk-to-cpu, mtbf: 4s, repair: 500ms}"] if draw.random() < 0.5 else []
        faults = f", faults: [{', '.join(kinds)}], faults_until: {span_s}s"
    return f"fleet={{plan: [{', '.join(events)}], in_flight: {in_flight}{faults}}}"


def overrides(seed: int) -> list[str]:
    draw = random.Random(seed)
    machines = draw.randint(1, 3)
    tiers = draw.random() < 0.8
    chosen = [
        random_plan(draw, machines, 9.0, tiers),
        f"cluster.machines={machines}",
        f"workload.requests={draw.randint(12, 30)}",
        f"workload.arrivals={{process: poisson, rate_per_s: {draw.choice([4, 8, 20])}}}",
        f"replica.max_num_seqs={draw.choice([2, 4, 16])}",
        f"seed={draw.randint(0, 99)}",
    ]
    if machines > 1:
        chosen.append(f"router.policy={draw.choice(ROUTERS)}")
    if not tiers:
        chosen += ["tiers.cpu=null", "tiers.disk=null"]
    else:
        chosen += ["channels.cpu-to-gpu.bandwidth=300MB/s", "channels.gpu-to-cpu.bandwidth=300MB/s"]
        chosen.append(f"write.policy={draw.choice(['through', 'through', 'through', 'back'])}")
        chosen.append("tiers.gpu.capacity=160 blocks")
    if draw.random() < 0.3:
        chosen.append("workload.loop=closed")
    return chosen


def one_plan(seed: int) -> None:
    scenario = load(*overrides(seed))
    trace = read_requests(scenario)
    made = by_the_clock(lambda: execute(scenario, trace, RunOptions(check="full")))
    check_conserved(scenario, made[0])
    plain = execute(scenario, trace, RunOptions())
    assert [other.summary["digest"] for other in made] == [plain.summary["digest"]] * 3


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVSIM_EXAMPLES", "8"))))
def test_nothing_is_lost_uncounted_whatever_the_plan(seed):
    one_plan(seed)


def rows_of(*settings):
    """Return the rows of a run, in order of the requests."""
    scenario = load(*settings)
    return columns(simulate(scenario.settings, read_requests(scenario)).requests)


@pytest.mark.parametrize("router", ["round-robin", "least-loaded", "longest-prefix"])
def test_a_machine_that_joins_before_all_requests_was_always_there(router):
    more = (f"router.policy={router}", "write.policy=through", "tiers.gpu.capacity=160 blocks")
    joined = rows_of("cluster.machines=2", "fleet={plan: [{at: 0s, do: join}]}", *more)
    assert joined == rows_of("cluster.machines=3", *more)
    assert set(joined["machine"]) == {0, 1, 2}


@pytest.mark.parametrize("do", ["drain", "lose"])
@pytest.mark.parametrize("router", ["round-robin", "least-loaded", "longest-prefix"])
def test_a_machine_that_goes_before_all_requests_was_never_there(do, router):
    more = (f"router.policy={router}", "write.policy=through", "tiers.gpu.capacity=160 blocks")
    gone = rows_of("cluster.machines=3", f"fleet={{plan: [{{at: 0s, do: {do}, machine: 2}}]}}", *more)
    assert gone == rows_of("cluster.machines=2", *more)


def test_plans_hit_requests_in_flight():
    counts = [
        execute(own := load(*overrides(seed)), read_requests(own), RunOptions()).summary for seed in range(12)
    ]
    assert sum(own["fleet"].get("retried", 0) + own["requests"]["failed"] > 0 for own in counts) >= 5


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


def test_requests_of_a_lost_machine_are_served_again_in_their_order(tmp_path):
    """Machine 0 leaves 2 and 4 to machine 1, which has 1 and 3; then machine 2 is the only one."""
    rows = [(0, 10 * n, 100) for n in range(5)] + [(99, 0)]
    events = [(1, "lose, machine: 0"), (1.1, "lose, machine: 1"), (1.1, "join")]
    plan = ", ".join(f"{{at: {at}s, do: {do}}}" for at, do in events)
    more = "cluster: {machines: 2}\nreplica: {max_num_seqs: 1}"
    _, made = at_times(tmp_path, rows, f"{{plan: [{plan}]}}", more)
    assert made.run.requests["machine"].tolist() == [0, 1, 2, 2, 2, 2]
    ends = made.run.requests["finish_ns"].tolist()
    assert ends == sorted(ends)


def test_requests_fail_when_no_machine_is_left(tmp_path):
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
