"""Machines that come and go: random plans, known service times, drains, what is refused."""

import json

import pytest
from fleet_runs import at_times
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions, simulate
from support.agreement import columns
from support.tiered_scenario import load


def rows_of(*settings):
    """Return the rows of a run, in order of the requests."""
    scenario = load(*settings)
    return columns(simulate(scenario.settings, read_requests(scenario)).requests)


@pytest.mark.parametrize(
    ("event", "machines"), [("do: join", 3), ("do: drain, machine: 1", 1), ("do: lose, machine: 1", 1)]
)
@pytest.mark.parametrize("router", ["round-robin", "least-loaded", "longest-prefix"])
def test_a_machine_that_comes_or_goes_before_all_requests_always_did(event, machines, router):
    more = (f"router.policy={router}", "write.policy=through", "tiers.gpu.capacity=160 blocks")
    found = rows_of("cluster.machines=2", f"fleet={{plan: [{{at: 0s, {event}}}]}}", *more)
    if machines == 1:
        more = more[1:]
    assert found == rows_of(f"cluster.machines={machines}", *more)
    assert set(found["machine"]) == set(range(machines))


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
    joins = "{at: 0s, do: join}, {at: 1ns, do: lose, machine: 0}, {at: 1ns, do: lose, machine: 1}"
    made = one_by_one(tmp_path, 5, f"fleet: {{plan: [{joins}]}}")
    assert made.summary["requests"]["failed"] == 5, "no machine will join any more"
    drained = one_by_one(tmp_path, 5, "fleet: {plan: [{at: 1ns, do: drain, machine: 0}]}")
    assert drained.summary["requests"]["finished"] == 5


def test_an_unneeded_event_changes_nothing_and_does_not_prolong_the_run():
    base = execute(scenario := load(), read_requests(scenario), RunOptions()).summary
    late = load("fleet={plan: [{at: 9h, do: lose, machine: 0}, {at: 10h, do: join}]}")
    made = execute(late, read_requests(late), RunOptions()).summary
    assert made["digest"]["results"] == base["digest"]["results"]
    assert made["simulated_s"] == base["simulated_s"]
