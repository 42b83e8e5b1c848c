"""Rules of a fleet on machines that only record what is done to them: losses, copies of a peer, who is released."""

from __future__ import annotations

from itertools import accumulate, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.engine import Engine
from kvcache_sim.errors import UsageError
from kvcache_sim.scenario import fleet_events as events_of
from kvcache_sim.scenario.cluster_sections import FaultSection, FleetEventSection, FleetSection
from kvcache_sim.scenario.fleet_events import Fault, FleetEvent, drawn_faults, event_texts, fleet_events
from kvcache_sim.scenario.schema import ClusterSection, ScenarioModel
from kvcache_sim.scenario.yaml_tree import Tree as YamlTree
from kvcache_sim.serving.membership import losses, scaling
from kvcache_sim.serving.membership.losses import Losses, empty_caches, lose_tier
from kvcache_sim.serving.membership.membership import Membership
from kvcache_sim.serving.membership.plan import Flush, MembershipEvent, MembershipPlan, TierLoss
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings
from kvcache_sim.serving.router.contract import Occupancy
from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.units import LAST_NS

TIERS = 4


class Tree:
    """The copies of one prompt: by block the tiers that have it."""

    def __init__(self, blocks: list[set[int]]) -> None:
        self.blocks = blocks

    def copies(self, request: int, limit: int) -> list[tuple[int, list[int]]]:
        moves = [[NO_MOVE if tier in own else NO_COPY for tier in range(TIERS)] for own in self.blocks]
        ends = [n for n in range(1, len(moves) + 1) if n == len(moves) or moves[n] != moves[n - 1]]
        return [(end, moves[end - 1]) for end in ends]

    def remove(self, request: int, part: tuple[int, int], tier: int) -> int:
        gone = [own for own in self.blocks[slice(*part)] if tier in own]
        for own in gone:
            own.discard(tier)
        return len(gone)


def replica(engine: Engine, machine: int = 0, **more: object) -> SimpleNamespace:
    called: list[int] = []
    return SimpleNamespace(
        machine=machine, tiers=TIERS, engine=engine, called=called, catch_up=called.append,
        cache=SimpleNamespace(block_size_tokens=10), **more,
    )  # fmt: skip


@examples(100)
@given(st.lists(st.sets(st.integers(0, TIERS - 1), min_size=1), max_size=7), st.integers(0, TIERS - 1))
def test_a_lost_tier_takes_what_no_lookup_reaches_without_it(blocks, lost):
    tree = Tree([set(own) for own in blocks])
    gone = lose_tier(TierLoss(0, 0, lost), replica(Engine(0)), tree, 1)
    alone = [lost in own and min(own) == lost for own in blocks]
    first = alone.index(True) if any(alone) else len(blocks)
    kept = [{t for t in own if t != lost and (t < lost or n < first)} for n, own in enumerate(blocks)]
    assert tree.blocks == kept
    assert gone == sum(map(len, blocks)) - sum(map(len, kept))


def test_a_flush_empties_the_named_machine_or_all():
    engine = Engine(0)
    machines = [replica(engine, machine) for machine in range(3)]
    trees = [Tree([{0, 2}, {1}]) for _ in machines]
    plan = MembershipPlan(flushes=(Flush(9, 1), Flush(15, None)))
    lost = Losses(plan, machines, trees, engine, lambda: False, 1)
    lost.start()
    engine.run(10)
    assert [sum(map(len, tree.blocks)) for tree in trees] == [3, 0, 3]
    engine.run()
    assert [one.called for one in machines] == [[15], [9, 15], [15]]
    assert lost.counts == {"tiers_lost": 0, "blocks_lost": 9, "index_lost": 0, "flushes": 2}


@pytest.mark.parametrize("counts", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)])
def test_an_engine_with_a_request_that_waits_runs_or_loads_keeps_its_cache(counts):
    assert empty_caches(replica(Engine(0), counts=lambda: counts), None, 1) == 0  # it has no store to empty


@pytest.mark.parametrize(("keeps", "block", "kept"), [(True, 16, 1), (True, 1, 0), (False, 16, 0)])
def test_an_emptied_cache_keeps_the_page_that_its_engine_keeps_free(monkeypatch, keeps, block, kept):
    taken = []
    store = SimpleNamespace(
        occupancy=lambda tier: SimpleNamespace(free_blocks=4, cached_blocks=5),
        acquire=lambda *_: None, release=lambda *_: None, reserve=lambda _, blocks, now_ns: taken.append(blocks) or [],
    )  # fmt: skip
    own = replica(Engine(0), store=store, counts=lambda: (0, 0, 0, 0))
    own.cache.block_size_tokens = block
    monkeypatch.setattr(losses, "store_kind", lambda _: SimpleNamespace(keeps_page_free=keeps))
    assert (empty_caches(own, None, 1), taken) == (5, [9 - kept])


@pytest.mark.parametrize(("in_flight", "left"), [("retry", [4, 0]), ("fail", [2, 0])])
def test_a_lost_machine_has_no_requests(in_flight, left):
    engine = Engine(0)
    plan = MembershipPlan(events=(MembershipEvent(5, "lose", 1),), in_flight=in_flight)
    router = SimpleNamespace(choose=lambda arrival: arrival.request % 2)
    alone = SimpleNamespace(choose=lambda _: 0)
    members = Membership(
        plan, [replica(engine, 0), replica(engine, 1)], lambda own: router if len(own) > 1 else alone, engine
    )
    still_open = {0, 1, 2, 3}

    class Requests:
        send = staticmethod(lambda request: members.choose(Arrival(request, 0, 1, 1)))
        fail = staticmethod(still_open.discard)
        open_requests = property(lambda _: len(still_open))

    members.start(Requests())
    for request in range(4):
        members.choose(Arrival(request, 0, 1, 1))
    assert members.requests_by_machine == [2, 2]
    engine.run()
    assert members.requests_by_machine == left
    assert members.counts["retried"] + members.counts["failed"] == 2


# --- copies of a peer --------------------------------------------------------------------------------------


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6), st.integers(1, 20))
def test_a_machine_copies_the_latest_prompts_up_to_its_bound(prompts, most):
    found, lengths = zip(*prompts, strict=True) if prompts else ((), ())
    peer = SimpleNamespace(peek=lambda request, limit: (min(found[request], limit), 0))
    upto = [min(n, most) for n in accumulate(map(min, found, lengths), initial=0)]
    expected = [(n, after - before) for n, (before, after) in enumerate(pairwise(upto))]
    copies = scaling.worth_copying(peer, range(len(prompts)), lengths, most)
    assert copies == [(request, blocks) for request, blocks in expected if blocks]


class Idle:
    """A store of an idle machine whose prompts share nothing: its free blocks, and the order of uses."""

    def __init__(self, free: int, there: dict[int, int]) -> None:
        self.free, self.there, self.used = free, there, []

    def peek(self, request, limit):
        return 0, min(self.there.get(request, 0), limit)

    def acquire(self, request, depth):
        return request

    def occupancy(self, tier):
        return SimpleNamespace(free_blocks=self.free)

    def reserve(self, lease, blocks, now_ns):
        self.free -= blocks
        return []

    def commit(self, lease, to, ready):
        self.there[lease] = to

    def release(self, lease, now_ns):
        self.used.append(lease)


@examples(100)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=5), st.integers(0, 12))
def test_copies_that_fit_are_inserted_the_latest_prompt_last(prompts, free):
    store = Idle(free, {n: there for n, (_, there) in enumerate(prompts)})
    placed = scaling.insert_copies(store, [scaling.Copied(n, own) for n, (own, _) in enumerate(prompts)], 0)
    left, expected = free, {n: there for n, (_, there) in enumerate(prompts)}
    for n, (blocks, there) in reversed([*enumerate(prompts)]):
        if blocks - min(there, blocks) <= left:
            left -= blocks - min(there, blocks)
            expected[n] = max(there, blocks)
    assert (store.there, store.free, placed) == (expected, left, free - left)
    assert store.used == [*reversed(range(len(prompts)))]


# --- who comes and goes ------------------------------------------------------------------------------------


class Members:
    """Machines that serve, and the requests on each."""

    chosen, first_ns = 0, 0

    def __init__(self, serving, here):
        self.serving, self.requests_by_machine = serving, here

    def when_left(self, notify):
        self.left = notify

    def join(self, machine):
        self.serving = sorted({*self.serving, machine})

    def drain(self, machine):
        self.serving.remove(machine)


def fleet(monkeypatch, schedule, first, here, **more):
    """Return a fleet of a schedule, with a decision each 10 ns, and the machines whose blocks are looked up."""
    monkeypatch.setattr(
        scaling, "published_by", lambda replicas: lambda: Occupancy(*([0] * len(replicas),) * 3)
    )
    engine, peeked = Engine(0), []

    def peek(machine):
        return lambda request, limit: (peeked.append((machine, request)), (1, 0))[1]

    machines = [replica(engine, n, store=SimpleNamespace(peek=peek(n))) for n in range(len(here))]
    settings = ScalingSettings(
        "schedule", first, 1, len(here), interval_ns=10, hold_ns=0, schedule=schedule, **more
    )
    members, trace = Members(list(range(first)), here), SimpleNamespace(input_tokens=np.full(9, 40))
    own = scaling.Scaling(settings, members, machines, [None] * len(here), trace, engine)
    own.start()
    return own, members, engine, peeked


def test_the_machine_that_was_ordered_last_is_released_first(monkeypatch):
    own, _, engine, _ = fleet(monkeypatch, ((10, 2), (20, 4), (30, 3), (40, 2)), 1, [0] * 4, startup_ns=99)
    engine.run(40)
    assert own.changes == [
        (10, "ordered", 1), (20, "ordered", 2), (20, "ordered", 3), (30, "off", 3), (40, "off", 2),
    ]  # fmt: skip


def test_of_those_that_serve_the_least_used_goes_of_equals_the_highest_number(monkeypatch):
    own, _, engine, _ = fleet(monkeypatch, ((10, 3), (20, 2), (30, 1)), 4, [0, 1, 1, 2])
    engine.run(30)
    assert own.changes == [(10, "drains", 0), (10, "off", 0), (20, "drains", 2), (30, "drains", 1)]


@pytest.mark.parametrize(("left", "peer"), [([(2, 5), (1, 4)], 1), ([(2, 5), (1, 4), (2, 6)], 2), ([], 0)])
def test_a_machine_copies_of_the_one_that_finished_most_of_equals_the_lowest_number(monkeypatch, left, peer):
    _, members, engine, peeked = fleet(monkeypatch, ((10, 4),), 3, [0] * 4, warm_blocks=5, warm_block_ns=7)
    for machine, request in left:
        members.left(machine, request, 0)
    engine.run(10)
    # the latest request first
    assert peeked == [(peer, request) for machine, request in reversed(left) if machine == peer]


def test_a_machine_that_comes_again_has_finished_nothing(monkeypatch):
    schedule = ((10, 2), (20, 3), (30, 4))
    _, members, engine, peeked = fleet(monkeypatch, schedule, 3, [0] * 4, warm_blocks=5, warm_block_ns=7)
    for name in ("empty_caches", "insert_copies"):
        monkeypatch.setattr(scaling, name, lambda *_: 0)
    for machine, request in ((2, 5), (2, 6), (1, 4)):
        members.left(machine, request, 0)
    engine.run(30)
    assert peeked == [(1, 4), (1, 4)], "machine 2 leaves at 10 and comes again at 20"


def test_a_policy_gets_the_arrivals_since_the_last_decision(monkeypatch):
    own, members, engine, _ = fleet(monkeypatch, (), 1, [0])
    for at_ns, chosen, arrived in ((10, 3, 3), (20, 5, 2), (30, 5, 0)):
        members.chosen = chosen
        assert own._state().arrived == arrived
        engine.run(at_ns)


# --- a plan and faults in order of time ---------------------------------------------------------------------

_AT = st.integers(0, 5)
PLANNED = st.builds(
    FleetEventSection,
    at=_AT,
    do=st.sampled_from(("join", "drain", "lose", "lose-tier", "lose-index", "slow", "flush")),
    machine=st.none() | st.integers(0, 3),
    lasts=st.none() | st.integers(1, 3),
)
FAULTS = st.builds(
    lambda do, at, slot, lasts: Fault(
        at, FaultSection(do=do, mtbf=1, channel="c", tier="cpu"), slot, None if lasts is None else at + lasts
    ),
    *(st.sampled_from(("lose", "slow", "lose-index")), _AT, st.integers(0, 1), st.none() | st.integers(1, 3)),
)


def fleet_of(plan, startup=0, machines=2, **more):
    fleet = FleetSection(plan=list(plan), startup=startup, **more)
    return ScenarioModel(fleet=fleet, cluster=ClusterSection(machines=machines))


def by_hand(plan, faults, startup):
    """Each event as (time, what, machine, end) with machines as rows that change; None: an event of no machine."""
    rows = [{"serves": True, "there": True, "failed": False} for _ in range(2)]
    holder = {0: 0, 1: 1}
    moments = [(own.at + startup * (own.do == "join"), "plan", own) for own in plan]
    for fault in faults:
        moments.append((fault.at_ns, "fault", fault))
        if fault.kind.do == "lose" and fault.until_ns is not None:
            moments.append((fault.until_ns + startup, "again", fault))
    found = []
    for at, kind, what in sorted(moments, key=lambda moment: moment[0]):
        if kind == "plan":
            machine, own = what.machine, what.do
            if machine is not None and machine < len(rows) and rows[machine]["failed"]:
                continue
            if own == "join":
                if machine is not None:
                    return None
                machine = len(rows)
                rows.append({"serves": True, "there": True, "failed": False})
            elif own in ("drain", "lose", "lose-tier") or (own == "flush" and machine is not None):
                if (
                    machine is None
                    or machine >= len(rows)
                    or not rows[machine]["serves" if own == "drain" else "there"]
                ):
                    return None
                if own in ("drain", "lose"):
                    rows[machine]["serves"] = False
                    rows[machine]["there"] &= own == "drain"
            found.append((at, own, machine, None if what.lasts is None else at + what.lasts))
        elif what.kind.do == "lose-index":
            found.append((at, "lose-index", None, None))
        elif kind == "again":
            if holder[what.slot] is None:
                holder[what.slot] = len(rows)
                found.append((at, "join", len(rows), None))
                rows.append({"serves": True, "there": True, "failed": False})
        elif (machine := holder[what.slot]) is not None and rows[machine]["there"]:
            if what.kind.do == "lose":
                rows[machine].update(serves=False, there=False, failed=True)
                holder[what.slot] = None
            found.append((at, what.kind.do, machine, what.until_ns))
    return found


def _event(do, at=1, machine=None):
    return FleetEventSection(at=at, do=do, machine=machine)


def _fault(at, slot=0, until=None, do="lose"):
    return Fault(at, FaultSection(do=do, mtbf=1, channel="c", tier="cpu"), slot, until)


@examples(200)
@given(st.lists(PLANNED, max_size=4), st.lists(FAULTS, max_size=4), st.integers(0, 2))
@example([_event("lose", 2, 0), _event("slow", 3, 0)], [_fault(1)], 0)
@example([_event("lose", 1, 0)], [_fault(2, until=3), _fault(4)], 0)
@example([_event("drain", 1, 0), _event("lose", 2, 0), _event("lose-tier", 3, 0)], [], 0)
@example([_event("drain", 1, 0), _event("drain", 2, 0)], [], 0)
@example([_event("join", 1), _event("drain", 2, 2)], [], 1)
@example([_event("join", 1), _event("drain", 2, 2)], [], 2)
@example([_event("join", 3), _event("flush", 4, 3)], [_fault(1, until=2), _fault(5)], 1)
@example([_event("lose", 0, 1)], [_fault(1, 1, do="slow"), _fault(1, 0, 2, "slow")], 0)
def test_the_events_of_a_plan_and_of_faults_against_rows_of_machines(plan, faults, startup):
    expected = by_hand(plan, faults, startup)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events_of, "drawn_faults", lambda *_: faults)
        if expected is None and (plan or faults):
            with pytest.raises(UsageError, match=r"a join names a machine|no such machine to"):
                fleet_events(fleet_of(plan, startup, faults=[one.kind for one in faults]), YamlTree())
            return
        found = fleet_events(fleet_of(plan, startup, faults=[one.kind for one in faults]), YamlTree())
    assert [
        (one.at_ns, one.do, one.machine, one.until_ns if one.do != "lose" else None) for one in found
    ] == [(*one[:3], one[3] if one[1] != "lose" else None) for one in expected]
    for one in found:
        if one.path or one.do in ("join", "lose-index"):
            assert (one.tier, one.channel) == ("", "")
        else:
            assert (one.tier, one.channel) == ("cpu", "c")
    assert [one.path for one in found if one.path] == sorted(
        (one.path for one in found if one.path),
        key=lambda path: plan[path[2]].at + startup * (plan[path[2]].do == "join"),
    )


@pytest.mark.parametrize(("machines", "listed"), [(6, "0, 1, 2, 3, 4, 5$"), (7, "0, 1, 2, 3, 4, 5, …$")])
def test_machines_that_an_event_could_name_are_listed(machines, listed):
    with pytest.raises(
        UsageError, match=f"to drain; got 9; expected machine: one that exists at that time, {listed}"
    ):
        fleet_events(fleet_of([_event("drain", 1, 9)], machines=machines), YamlTree())
    gone = [_event("lose", 1, 0), _event("lose", 2, 0)]
    with pytest.raises(UsageError, match=r"exists at that time, none$"):
        fleet_events(fleet_of(gone, machines=1), YamlTree())


SAID = [
    ({"at": "1s", "do": "join"}, "machine 2 joins"),
    ({"at": "2s", "do": "drain", "machine": 2}, "machine 2 drains"),
    ({"at": "3s", "do": "lose", "machine": 2}, "machine 2 is lost"),
    ({"at": "4s", "do": "lose-tier", "tier": "cpu", "machine": 0}, "cpu of machine 0 lost"),
    ({"at": "5s", "do": "lose-index"}, "the router's index lost"),
    ({"at": "6s", "do": "lose-pool"}, "the shared pool lost"),
    ({"at": "7s", "do": "flush"}, "caches emptied"),
    ({"at": "8s", "do": "flush", "machine": 1}, "caches of machine 1 emptied"),
    ({"at": "9s", "do": "slow", "channel": "nic", "share": 0.25}, "nic at 25% of its rate"),
    (
        {"at": "10s", "do": "slow", "channel": "nic", "share": 0, "machine": 0, "lasts": "2500ms"},
        "nic of machine 0 at 0% of its rate until 12.5 s",
    ),
]


@pytest.mark.parametrize("last", range(len(SAID) + 1))
def test_events_in_words_up_to_a_time(last):
    scenario = {"fleet": {"plan": [event for event, _ in SAID]}, "cluster": {"machines": 2}}
    texts = [((n + 1) * 10**9, text) for n, (_, text) in enumerate(SAID)]
    assert event_texts(scenario, last * 10**9) == texts[:last]
    assert event_texts(scenario, last * 10**9 - 1) == texts[: max(last - 1, 0)]
    assert event_texts({}, 10**9) == []
    random = {"fleet": {"faults": [{"do": "lose-index", "mtbf": "1s"}], "faults_until": "30s"}}
    assert event_texts(random, 10**11) == event_texts({**random, "seed": 0}, 10**11) != []


@examples(100)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.none() | st.integers(1, 6), st.sampled_from((0, 0.25, 0.5))),
        max_size=4,
    )
)
@example([(1, 2, 0.5), (3, 1, 0.25), (3, None, 0.5)])
@example([(1, 3, 0.5), (2, 1, 0.25)])
@example([(1, 3, 0.25), (2, 1, 0.5), (4, 2, 0.0)])
def test_the_lowest_share_applies_at_each_time(slow):
    """Spans in order of time, without overlap, of what every event says by itself."""
    events = [
        FleetEvent(at, "slow", channel="c", share=share, until_ns=None if lasts is None else at + lasts)
        for at, lasts, share in slow
    ]
    spans = events_of._slowed(ChannelSettings("c", 1), events).slowdowns
    for at in range(14):
        shares = [
            share for start, lasts, share in slow if start <= at and (lasts is None or at < start + lasts)
        ]
        found = [one.share_ppm for one in spans if one.from_ns <= at < one.until_ns]
        assert found == ([round(min(shares) * 1e6)] if shares else [])
    assert all(one.until_ns <= other.from_ns for one, other in pairwise(spans))
    forever = [one for one in slow if one[1] is None]
    assert bool(forever) == any(one.until_ns == LAST_NS for one in spans)


@pytest.mark.parametrize(
    ("scope", "machine", "names"),
    [
        (None, 1, {"c"}),
        ("cluster", 1, {"c"}),
        ("machine", 1, {"c", "c-1"}),
        ("machine", None, {"c", "c-0", "c-1", "c-2"}),
    ],
)
def test_the_channels_of_an_event(scope, machine, names):
    sections = {} if scope is None else {"c": SimpleNamespace(scope=scope)}
    wiring = SimpleNamespace(sections=sections, edge_channels=[{}] * 3)
    assert events_of._instances(FleetEvent(0, "slow", machine, channel="c"), wiring) == names


class Every:
    """Draws the same time between faults each time; notes the mean and the name of each stream."""

    def __init__(self, gap: float) -> None:
        self.gap, self.names, self.means = gap, [], []

    def __call__(self, seed: int, name: str) -> Every:
        self.names.append((seed, name))
        return self

    def exponential(self, mean: float) -> float:
        self.means.append(mean)
        return self.gap


@pytest.mark.parametrize(
    ("do", "repair", "gap", "until", "times"),
    [
        ("lose", 3, 2.4, 12, [(2, 5), (7, 10)]),
        ("lose", 3, 2.4, 13, [(2, 5), (7, 10), (12, 15)]),
        ("lose", None, 2, 9, [(2, None)]),
        ("slow", None, 2, 9, [(2, None)]),
        ("lose-tier", None, 2, 7, [(2, None), (4, None), (6, None)]),
        ("slow", 1, 0.2, 4, [(1, 2), (3, 4)]),
        ("slow", 1, 5, 5, []),
        ("slow", 1, 5, 6, [(5, 6)]),
    ],
)
def test_faults_until_a_time_by_hand(monkeypatch, do, repair, gap, until, times):
    """Each begins a drawn time, of 1 ns at least, after the end of the one before it."""
    draws = Every(gap)
    monkeypatch.setattr(events_of, "stream", draws)
    kind = FaultSection(do=do, mtbf=7, repair=repair, tier="cpu", channel="c")
    found = drawn_faults(FleetSection(faults=[kind], faults_until=until), 2, 11)
    assert found == sorted(
        (Fault(at, kind, slot, end) for slot in (0, 1) for at, end in times), key=lambda fault: fault.at_ns
    )
    assert draws.names == [(11, f"fleet.faults.0.{do}.{slot}") for slot in (0, 1)]
    assert set(draws.means) == {7}


def test_the_faults_of_a_run_are_bounded(monkeypatch):
    monkeypatch.setattr(events_of, "stream", Every(1))
    monkeypatch.setattr(events_of, "_MOST", 6)
    index, tier = (FaultSection(do=do, mtbf=1, tier="cpu") for do in ("lose-index", "lose-tier"))
    assert len(drawn_faults(FleetSection(faults=[index, tier], faults_until=3), 2, 0)) == 6
    assert drawn_faults(FleetSection(faults=[index, tier]), 2, 0) == []
    with pytest.raises(UsageError, match=r"too many faults.*at most 6 of them"):
        drawn_faults(FleetSection(faults=[tier], faults_until=8), 1, 0)
