"""Fleets that grow and shrink by a policy: the rules, known times and machine-seconds, copies of a peer."""

from textwrap import dedent

import pytest
from fleet_runs import S, at_times, changes, found
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.serving.membership.scaling_policy import SCALING
from kvcache_sim.serving.membership.scaling_policy.contract import FleetState
from support.product.machines import ScalingSettings
from support.product.scenarios import cost_of


def wanted(policy, state, **own):
    return SCALING.make(policy, ScalingSettings(policy, 1, 1, 99, **own)).wanted(state)


def state(starting=0, waiting=0, running=0, kv_use=0.0):
    return FleetState(0, 4, starting, waiting, running, kv_use, 0)


@pytest.mark.parametrize(
    ("policy", "own", "given", "machines"),
    [
        ("queue", {"tolerance": 0.0}, state(waiting=21), 5),
        ("requests", {}, state(waiting=100, running=64), 6),
        ("requests", {"target": 2.5}, state(running=25), 10),
        ("kv-use", {}, state(kv_use=0.9), 6),  # 4 x .9 / .7 = 5.14
        ("kv-use", {}, state(kv_use=0.9, starting=1), 5),  # within a tenth of five
        ("kv-use", {"target": 0.5}, state(kv_use=0.25), 2),
    ],
)
def test_how_many_machines_a_policy_wants(policy, own, given, machines):
    assert wanted(policy, given, **own) == machines


# --- known times -------------------------------------------------------------------------------------------


def following(startup, most, times, warm_tokens=None, bandwidth=2147483648):
    """Return a fleet that follows (second, machines); a block takes 1/32 s to copy, if not said otherwise."""
    schedule = ", ".join(f"{{at: {at}s, machines: {count}}}" for at, count in times)
    warm = "" if warm_tokens is None else f", warmup: {{tokens: {warm_tokens}, bandwidth: {bandwidth}B/s}}"
    return (
        f"{{startup: {startup}, scaling: {{policy: schedule, most: {most}, interval: 1s, hold: 0s, "
        f"schedule: [{schedule}]{warm}}}}}"
    )


THREE_ONE_TWO = [(10, 3), (30, 1), (40, 2)]
TWO = "cluster: {machines: 2}"


def test_an_autoscaler_reads_what_engines_published_last(tmp_path):
    """Sixty requests arrive a millisecond before the decision: no schedule has left them waiting yet."""
    fleet = "{startup: 2s, scaling: {policy: queue, most: 2, interval: 1s}}"
    _, made = at_times(tmp_path, [(0.999, 4 * n) for n in range(60)], fleet)
    assert changes(made)[0][0] == 2.0


def test_a_share_of_kv_is_that_of_the_machines_that_serve(tmp_path):
    """Twenty blocks of a prompt and one more each 512 tokens, of 99: a quarter is passed between 10 and 20 s."""
    fleet = "{scaling: {policy: kv-use, target: 0.25, tolerance: 0.0, most: 4, interval: 10s}}"
    _, made = at_times(tmp_path, [(1, 0, 3000, 20), (25, 30)], fleet)
    assert changes(made) == [(20.0, "ordered", 1), (20.0, "serves", 1)]


def test_a_policy_sees_what_arrived_since_its_last_decision(tmp_path):
    policy = """
        class Watch:
            def __init__(self, settings):
                pass

            def wanted(self, state):
                with open(__file__ + ".seen", "a") as seen:
                    seen.write(f"{state.arrived} ")
                return 1
    """
    (tmp_path / "watch.py").write_text(dedent(policy))
    rows = [(0.5, 0), (0.6, 20), (2.5, 0), (3.5, 0)]
    at_times(tmp_path, rows, "{scaling: {policy: watch.py:Watch, most: 2, interval: 1s}}")
    assert (tmp_path / "watch.py.seen").read_text() == "2 0 1 " * 3  # of three runs


@pytest.mark.parametrize(("asked", "ends"), [(0, 2), (1, 2), (2, 2), (3, 3), (4, 4), (5, 4), (99, 4)])
def test_a_fleet_stays_within_its_limits_whatever_its_policy_asks(tmp_path, asked, ends):
    """From three machines; a decision for the limit itself is followed, one beyond it up to the limit."""
    (tmp_path / "ask.py").write_text(
        f"class Ask:\n    def __init__(self, settings): pass\n\n    def wanted(self, state): return {asked}\n"
    )
    scaling = "policy: ask.py:Ask, least: 2, most: 4, interval: 1s, hold: 0s"
    _, made = at_times(
        tmp_path, [(0.5, 0), (3.5, 0)], f"{{scaling: {{{scaling}}}}}", "cluster: {machines: 3}"
    )
    serving = 3 + sum({"serves": 1, "drains": -1}.get(change, 0) for _, change, _ in changes(made))
    assert serving == ends


def test_machine_seconds_of_a_schedule(tmp_path):
    cost = "cost: {gpu_hour: 3600, gpus_per_machine: 2}"
    scenario, made = at_times(tmp_path, [(4, 0), (50, 0)], following("2s", 3, THREE_ONE_TWO), cost)
    assert changes(made) == [
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


def test_a_machine_that_comes_again_is_empty(tmp_path):
    """Round robin begins anew at each change: 13 and 14 s go to machines 0 and 1, 43 and 44 s again."""
    rows = [(4, 0), (13, 9), (14, 0), (15, 9), (16, 9), (17, 0), (43, 0), (44, 0)]
    _, made = at_times(tmp_path, rows, following("2s", 3, THREE_ONE_TWO))
    assert made.run.requests["machine"].tolist() == [0, 0, 1, 2, 0, 1, 0, 1]
    assert found(made) == [0, 0, 0, 0, 3, 3, 3, 0]


def test_the_machine_without_requests_leaves_and_the_same_machine_comes_again(tmp_path):
    """Machines 0 and 2 serve for ten seconds when machine 1 leaves; round robin goes by number, as it is back."""
    rows = [(28, 0, 1500), (28.1, 20), (28.2, 40, 1500), (50, 60), (51, 80), (52, 100)]
    _, made = at_times(tmp_path, rows, following("1s", 3, [(10, 3), (29, 2), (45, 3)]))
    assert changes(made)[4:] == [
        (29.0, "drains", 1),
        (29.0, "off", 1),
        (45.0, "ordered", 1),
        (46.0, "serves", 1),
    ]
    assert made.run.requests["machine"].tolist() == [0, 1, 2, 0, 1, 2]


def test_demand_that_recurs_within_the_hold_removes_no_machine(tmp_path):
    fleet = following("0s", 3, [(10, 2), (12, 1), (14, 2), (20, 1)]).replace("hold: 0s", "hold: 5s")
    _, made = at_times(tmp_path, [(4, 0), (40, 0)], fleet)
    # the last time two were wanted is 19 s: five seconds later that still counts, six later not
    assert changes(made) == [(10.0, "ordered", 1), (10.0, "serves", 1), (25.0, "drains", 1), (25.0, "off", 1)]


def test_the_machine_that_was_ordered_last_is_released_first(tmp_path):
    _, made = at_times(tmp_path, [(1, 0), (20, 0)], following("5s", 4, [(10, 3), (12, 4), (13, 3)]))
    assert changes(made)[2:4] == [(12.0, "ordered", 3), (13.0, "off", 3)]
    # whichever is ready first: machine 1 has begun to copy, until 19.5 s, machine 2 would copy from 12.5 s on
    fleet = following("1500ms", 3, [(10, 2), (11, 3), (12, 2)], 2048, 2**25)
    _, made = at_times(tmp_path, [(1, 0), (30, 0)], fleet)
    assert changes(made)[2:] == [(12.0, "off", 2), (19.5, "serves", 1)]


def test_a_drain_ends_with_the_last_request(tmp_path):
    rows = [(12.9, 0), *((13.9, 5 * n, 2 + 40 * n) for n in range(1, 7))]
    _, made = at_times(tmp_path, rows, following("2s", 4, [(10, 3), (13, 4), (14, 2)]))
    assert changes(made)[4:7] == [(13.0, "ordered", 3), (14.0, "off", 3), (14.0, "drains", 2)]
    ends = made.run.requests["finish_ns"][made.run.requests["machine"] == 2]
    assert len(ends) == 2
    assert changes(made)[7:] == [(ends.max() / 1e9, "off", 2)]


# --- copies of a peer --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "of_20"), [(4096, 4), (3072, 2)])
def test_a_machine_that_comes_copies_what_a_peer_was_asked_for_last(tmp_path, tokens, of_20):
    """Eight or six blocks each for machines 1 and 2: all of 40, all or half of 20, nothing of 0."""
    rows = [(4, 0), (5, 20), (6, 40), (18, 40), (19, 40), (20, 20), (21, 0), (22, 0), (23, 20)]
    _, made = at_times(tmp_path, rows, following("2s", 3, THREE_ONE_TWO, tokens))
    assert made.summary["fleet"]["warmed_blocks"] == 2 * tokens // 512
    serves = [second for second, change, _ in changes(made) if change == "serves"]
    assert serves[:2] == [pytest.approx(12 + tokens / 512 / 32, abs=1e-6)] * 2
    assert made.run.requests["machine"].tolist() == [0, 0, 0, 0, 1, 2, 0, 1, 2]
    assert found(made)[:8] == [0, 0, 0, 3, 3, min(of_20, 3), 3, 0]


def test_of_equal_peers_the_lowest_number_is_copied(tmp_path):
    rows = [(1, 0), (2, 20), (20, 40), (21, 40), (22, 0), (23, 60), (24, 60), (25, 20)]
    _, made = at_times(tmp_path, rows, following("2s", 3, [(10, 3)], 2048), TWO)
    assert made.run.requests["machine"].tolist() == [0, 1, 0, 1, 2, 0, 1, 2]
    assert found(made) == [0, 0, 0, 0, 3, 0, 0, 0]


def test_a_machine_that_drained_has_served_nothing_when_it_comes_again(tmp_path):
    """Machine 1 serves three prompts and machine 0 one; back, machine 1 has a copy of that one, as machine 2."""
    rows = [(1, 0), (2, 20), (3, 20), (4, 20), (60, 0)]
    fleet = following("2s", 3, [(20, 1), (30, 2), (45, 3)], 2048)
    _, made = at_times(tmp_path, rows, fleet, f"{TWO}\nrouter: {{policy: cache-aware}}")
    assert made.run.requests["machine"].tolist()[:4] == [0, 1, 1, 1]
    assert made.summary["fleet"]["warmed_blocks"] == 4 + 4


def test_copies_may_fill_a_machine_and_the_prompt_asked_for_last_is_the_most_recent(tmp_path):
    """Eight blocks are copied into eight; the next prompt there evicts prompt 0, not 20."""
    rows = [(at, first, 1) for at, first in ((1, 0), (2, 20), (15, 40), (16, 60), (20, 0), (21, 20))]
    fleet = following("2s", 2, [(10, 2)], 4096)
    _, made = at_times(tmp_path, rows, fleet, "tiers: {gpu: {capacity: 8 blocks}}")
    assert made.summary["fleet"]["warmed_blocks"] == 8
    assert made.run.requests["machine"].tolist()[3:] == [1, 0, 1]
    assert found(made) == [0, 0, 0, 0, 0, 3]


# --- whatever happens --------------------------------------------------------------------------------------


def test_explain_counts_the_machines_that_served(tmp_path, capsys):
    """One of three that are ordered is released before it serves."""
    fleet = following("5s", 4, [(10, 3), (12, 4), (13, 3)])
    at_times(tmp_path, [(1, 0), (20, 0)], fleet)
    assert kvsim(["simulate", "-c", str(tmp_path / "s.yaml"), "-o", str(tmp_path / "run"), "-q"]) == 0
    assert kvsim(["explain", str(tmp_path / "run")]) == 0
    assert "kept 1 to 3 machines in service: 3 ordered, 1 released" in " ".join(
        capsys.readouterr().out.split()
    )
