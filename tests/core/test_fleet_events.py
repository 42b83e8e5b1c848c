"""The plan of a fleet and its random faults in order of time: which machine each is of, when channels are slow."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng.root import stream
from kvcache_sim.base.units import LAST_NS
from kvcache_sim.scenario.cluster_sections import FaultSection, FleetEventSection, FleetSection
from kvcache_sim.scenario.fleet_events import Fault, drawn_faults, fleet_events
from kvcache_sim.scenario.schema import ClusterSection, ScenarioModel
from support.examples import examples
from support.product.scenarios import Tree
from support.tiered_scenario import load

S = 10**9


# --- a plan and faults in order of time ---------------------------------------------------------------------

PLANNED = st.builds(
    FleetEventSection,
    at=st.integers(0, 5),
    do=st.sampled_from(("join", "drain", "lose", "lose-tier", "lose-index", "slow", "flush")),
    machine=st.none() | st.integers(0, 3),
    lasts=st.none() | st.integers(1, 3),
)
KINDS = st.builds(
    FaultSection,
    do=st.sampled_from(("lose", "lose", "slow", "lose-index")),
    mtbf=st.integers(1, 3),
    repair=st.none() | st.integers(1, 3),
    channel=st.just("c"),
    tier=st.just("cpu"),
)


def planned(do, at, machine=None):
    return FleetEventSection(at=at, do=do, machine=machine)


def by_hand(plan, faults, startup):
    """Each event as (time, what, machine, end), machines as rows that change; None: an event of no machine."""
    rows = [{"serves": True, "there": True, "failed": False} for _ in range(2)]
    holder, found = {0: 0, 1: 1}, []

    def joins(at, end=None):
        found.append((at, "join", len(rows), end))
        rows.append({"serves": True, "there": True, "failed": False})

    moments = [(own.at + startup * (own.do == "join"), "plan", own) for own in plan]
    for fault in faults:
        moments.append((fault.at_ns, "fault", fault))
        if fault.kind.do == "lose" and fault.until_ns is not None:
            moments.append((fault.until_ns + startup, "again", fault))
    for at, kind, what in sorted(moments, key=lambda moment: moment[0]):
        if kind == "again":
            if holder[what.slot] is None:
                holder[what.slot] = len(rows)
                joins(at)
            continue
        machine, do = (what.machine, what.do) if kind == "plan" else (holder[what.slot], what.kind.do)
        row = rows[machine] if machine is not None and machine < len(rows) else None
        end = what.until_ns if kind == "fault" else None if what.lasts is None else at + what.lasts
        if kind == "plan" and row is not None and row["failed"]:
            continue
        if do == "join":
            if machine is not None:
                return None
            joins(at, end)
            continue
        if do == "lose-index" and kind == "fault":
            machine, end = None, None
        elif kind == "fault" and (row is None or not row["there"]):
            continue
        elif do in ("drain", "lose", "lose-tier") or (do == "flush" and machine is not None):
            able = row is not None and row["serves" if do == "drain" else "there"]
            if not able:
                return None
        if do in ("drain", "lose"):
            row.update(serves=False, there=row["there"] and do == "drain", failed=kind == "fault")
            if kind == "fault":
                holder[what.slot] = None
        found.append((at, do, machine, end))
    return found


@examples(250)
@given(st.lists(PLANNED, max_size=4), st.lists(KINDS, max_size=2), st.integers(0, 2), st.integers(0, 999))
@example([planned("drain", 1, 0), planned("lose", 2, 0), planned("lose-tier", 3, 0)], [], 0, 0)
@example([planned("drain", 1, 0), planned("drain", 2, 0)], [], 0, 0)
@example([planned("join", 1), planned("drain", 2, 2)], [], 1, 0)
@example([planned("join", 1), planned("drain", 2, 2)], [], 2, 0)
def test_the_events_of_a_plan_and_of_faults_against_rows_of_machines(plan, kinds, startup, seed):
    fleet = FleetSection(plan=plan, startup=startup, faults=kinds, faults_until=6)
    model = ScenarioModel(fleet=fleet, cluster=ClusterSection(machines=2), seed=seed)
    expected = by_hand(plan, drawn_faults(fleet, 2, seed), startup)
    if expected is None and (plan or kinds):
        with pytest.raises(UsageError, match=r"a join names a machine|no such machine to"):
            fleet_events(model, Tree())
        return
    found = fleet_events(model, Tree())
    assert [(own.at_ns, own.do, own.machine) for own in found] == [own[:3] for own in expected]
    assert [own.until_ns for own in found if own.do == "slow"] == [
        own[3] for own in expected if own[1] == "slow"
    ]
    for own in found:
        drawn = not own.path and own.do in ("lose", "slow")
        assert (own.tier, own.channel) == (("cpu", "c") if drawn else ("", ""))
        if own.path:
            event = plan[own.path[2]]
            assert (own.do, own.at_ns) == (event.do, event.at + startup * (event.do == "join"))


# --- random faults -----------------------------------------------------------------------------------------


@examples(60)
@given(KINDS, st.integers(0, 20), st.integers(0, 999))
def test_each_fault_begins_a_drawn_time_after_the_end_of_the_one_before_it(kind, until, seed):
    found = drawn_faults(FleetSection(faults=[kind], faults_until=until), 2, seed)
    expected = []
    for slot in (0,) if kind.do == "lose-index" else (0, 1):
        draws, repair = stream(seed, f"fleet.faults.0.{kind.do}.{slot}"), kind.repair or 0
        gaps = [max(1, round(draws.exponential(kind.mtbf))) for _ in range(30)]
        times = [at + n * repair for n, at in enumerate(accumulate(gaps))]
        ends = kind.do in ("lose", "slow") and kind.repair is None
        own = [Fault(at, kind, slot, at + repair if repair else None) for at in times if at < until]
        expected += own[:1] if ends else own
    assert found == sorted(expected, key=lambda fault: fault.at_ns)


def test_a_run_has_twenty_thousand_faults_at_most():
    kind = FaultSection(do="lose-index", mtbf=1)
    draws = stream(0, "fleet.faults.0.lose-index.0")
    times = list(accumulate(max(1, round(draws.exponential(1))) for _ in range(20_001)))
    assert len(drawn_faults(FleetSection(faults=[kind], faults_until=times[-1]), 1, 0)) == 20_000
    with pytest.raises(UsageError, match="at most 20,000 of them"):
        drawn_faults(FleetSection(faults=[kind], faults_until=times[-1] + 1), 1, 0)
    assert drawn_faults(FleetSection(faults=[kind]), 1, 0) == []


# --- slow channels -----------------------------------------------------------------------------------------


@examples(60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 6), st.none() | st.integers(1, 6), st.sampled_from((0, 0.25, 0.5)), st.booleans()
        ),
        min_size=1,
        max_size=4,
    )
)
@example([(1, 2, 0.5, True), (3, 1, 0.25, True), (3, None, 0.5, True)])
@example([(1, 3, 0.5, True), (2, 1, 0.25, False)])
@example([(1, 3, 0.25, False), (2, 1, 0.5, True), (4, 2, 0.0, True)])
def test_the_lowest_share_applies_at_each_time(slow):
    """Spans in order of time, without overlap, of what every event says of both machines (True) or of machine 1."""
    plan = ", ".join(
        f"{{at: {at}s, do: slow, channel: cpu-to-gpu, share: {share}"
        + ("" if lasts is None else f", lasts: {lasts}s")
        + ("}" if both else ", machine: 1}")
        for at, lasts, share, both in slow
    )
    channels = load(f"fleet={{plan: [{plan}]}}").settings.channels
    for machine in (0, 1):
        spans = channels[f"cpu-to-gpu-{machine}"].slowdowns
        own = [event for event in slow if event[3] or machine == 1]
        for at in range(14):
            shares = [
                share
                for start, lasts, share, _ in own
                if start <= at and (lasts is None or at < start + lasts)
            ]
            there = [one.share_ppm for one in spans if one.from_ns <= at * S < one.until_ns]
            assert there == ([round(min(shares) * 1e6)] if shares else [])
        assert all(one.until_ns <= other.from_ns for one, other in pairwise(spans))
        forever = any(lasts is None for _, lasts, _, _ in own)
        assert forever == any(one.until_ns == LAST_NS for one in spans)
    assert channels["gpu-to-cpu-1"].slowdowns == ()


def test_a_channel_of_the_cluster_is_slow_by_its_own_name():
    shared = "channels.cpu-to-gpu.scope=cluster"
    channels = load(shared, "fleet={plan: [{at: 1s, do: slow, channel: cpu-to-gpu}]}").settings.channels
    assert [name for name, own in channels.items() if own.slowdowns] == ["cpu-to-gpu"]
