"""Bindings of sessions and of siblings to machines, with a time to live: the worked cases, by hand, in real runs."""

import json

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import open_requests
from kvcache_sim.simulation import RunOptions

#: A step takes 1 s, so an answer of n tokens takes n seconds.
BASE = (
    "trace: {path: t.jsonl, format: dynamo-agentic, block_size: 64}\ncluster: {machines: 2}\n"
    "router: {policy: power-of-two}\ncache: {block_size: 64}\ntiers: {gpu: {capacity: unbounded}}\n"
    "replica: {step_time: 'linear:base=1s,token=0ms', max_num_seqs: 99}\n"
)


def request(name, session, took, at=None, after=None, wait=None):
    """A request of one block: it comes at a time, or some seconds after another one has finished."""
    when = {"timestamp": 1000 * at} if after is None else {"wait_for": [after], "delay": 1000 * wait}
    ids = {"input_length": 64, "hash_ids": [abs(hash(name)) % 10**6]}
    session = {} if session is None else {"session_id": session}
    return {"request_id": name, "output_length": took, **ids, **session, **when}


def machines(folder, rows, *settings):
    """Return the machine of each request by name."""
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scenario = scenario_from_text(BASE, "s", folder, settings)
    made = execute(scenario, open_requests(scenario, RunOptions()), RunOptions())
    where = dict(
        zip(made.run.requests["request"].tolist(), made.run.requests["machine"].tolist(), strict=True)
    )
    return {row["request_id"]: where[number] for number, row in enumerate(rows)}


SIBLINGS = ("router.affinity={mode: sibling-group, ttl: 600s}",)


def family(second_after, third_after):
    """P's first turns, two children while p1 runs from 2 to 32, a second turn and a third child later.

    c1 runs from 7 to 42 and c2 from 8 to 52.
    """
    return [
        request("p0", "P", 1, at=0),
        request("p1", "P", 30, after="p0", wait=1),
        request("c1", "c1", 35, after="p0", wait=6),
        request("c2", "c2", 44, after="p0", wait=7),
        request("p2", "P", 1, after="p1", wait=second_after),
        request("c3", "c3", 1, after="p1", wait=third_after),
    ]


def crowd(at):
    """A session that is bound, when it begins, to the machine with fewer requests, and fills it from 590 s on."""
    rows = [request(f"b{k}", "b", 700, after="b0", wait=589 - at + k) for k in range(1, 4)]
    return [request("b0", "b", 1, at=at), *rows]


def test_siblings_share_a_machine_and_their_parent_keeps_its_own(tmp_path):
    found = machines(tmp_path, family(599, 619), *SIBLINGS)
    parent = found["p0"]
    assert found["p1"] == found["p2"] == parent
    assert found["c1"] == found["c2"] == found["c3"] == 1 - parent  # c2 although both are as busy


@pytest.mark.parametrize(("wait", "bound"), [(599, True), (600, True), (610, False)])
def test_a_binding_ends_a_time_to_live_after_its_last_request(tmp_path, wait, bound):
    """p2 comes ``wait`` after p1 has left, to a machine that is crowded: only a binding leads there."""
    found = machines(tmp_path, [*family(wait, 900), *crowd(9)], *SIBLINGS)
    assert {found[f"b{k}"] for k in range(4)} == {found["p1"]}  # at 9 s the children are on the other one
    assert (found["p2"] == found["p1"]) == bound


@pytest.mark.parametrize(("wait", "bound"), [(619, True), (630, False)])
def test_the_time_to_live_of_siblings_runs_from_the_last_of_them(tmp_path, wait, bound):
    """c3 comes at 32 + wait: 599 or 610 s after c2 has left at 52."""
    found = machines(tmp_path, [*family(599, wait), *crowd(3)], *SIBLINGS)
    assert {found[f"b{k}"] for k in range(4)} == {found["c1"]} == {found["c2"]} == {1 - found["p1"]}
    assert (found["c3"] == found["c2"]) == bound


def test_each_session_by_itself_and_none_for_requests_without(tmp_path):
    rows = family(599, 619)
    found = machines(tmp_path, rows, "router.affinity={ttl: 600s}")
    assert found["p0"] == found["p1"] == found["p2"]
    assert found["c1"] == 1 - found["p1"]
    alone = [request(f"r{k}", None, 5, at=k) for k in range(4)]
    assert machines(tmp_path, alone, "router.affinity={}") == machines(tmp_path, alone)


def test_a_recycled_play_has_none_of_the_bindings(tmp_path):
    """With lanes each play has its own keys, also where its first turn comes from a primer."""
    rows = family(20, 30)
    settings = ("workload.concurrency=1", "workload.plays=2", "router.policy=round-robin", *SIBLINGS)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scenario = scenario_from_text(BASE, "s", tmp_path, settings)
    made = execute(scenario, open_requests(scenario, RunOptions()), RunOptions())
    first, second = made.run.requests["machine"].reshape(2, -1).tolist()
    for play in (first, second):
        assert len({play[0], play[1], play[4]}) == 1
        assert len({play[2], play[3], play[5]}) == 1
    entered = scenario_from_text(BASE, "s", tmp_path, (*settings, "workload.enter=[0.1, 0.1]"))
    made = execute(entered, open_requests(entered, RunOptions()), RunOptions())
    trace, of_machine = made.trace, made.run.requests["machine"].tolist()
    by_session = {}
    for row, session in enumerate(trace.session.tolist()):
        if trace.play[row] < 1:
            by_session.setdefault(session, set()).add(of_machine[row])
    assert all(len(found) == 1 for found in by_session.values())


@pytest.mark.parametrize("policy", ["dynamo-kv", "longest-prefix", "least-loaded"])
def test_other_routers_choose_where_no_binding_holds(tmp_path, policy):
    found = machines(tmp_path, family(599, 619), f"router.policy={policy}", *SIBLINGS)
    assert found["p0"] == found["p1"] == found["p2"]
    assert found["c1"] == found["c2"] == found["c3"]


def test_a_lost_machine_holds_no_binding(tmp_path):
    rows = family(599, 619)
    parent = machines(tmp_path, rows, *SIBLINGS)["p0"]
    found = machines(tmp_path, rows, *SIBLINGS, f"fleet.plan=[{{at: 500s, do: lose, machine: {parent}}}]")
    assert found["p1"] == parent
    assert found["p2"] == 1 - parent


def test_hand_overs_bind_in_each_pool(tmp_path):
    settings = ("cluster.machines=4", "pools.prefill=2", "pools.decode=2", "replica.max_num_seqs=99")
    rows = family(599, 619)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scenario = scenario_from_text(BASE, "s", tmp_path, (*settings, "model=llama-3.1-8b", *SIBLINGS))
    made = execute(scenario, open_requests(scenario, RunOptions()), RunOptions())
    rows = made.run.requests
    for column in ("machine", "decode_machine"):
        where = dict(zip(rows["request"].tolist(), rows[column].tolist(), strict=True))
        used = [where[n] for n in range(6) if where[n] >= 0]
        assert used
        for group in ((0, 1, 4), (2, 3, 5)):
            assert len({where[n] for n in group} - {-1}) == 1


def test_a_router_that_counts_what_it_sends_is_refused(tmp_path):
    with pytest.raises(UsageError, match="lmetric counts what it sends itself"):
        machines(tmp_path, family(1, 1), "router.policy=lmetric", "router.affinity={}")
