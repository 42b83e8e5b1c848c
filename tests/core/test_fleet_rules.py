"""Rules of a fleet on machines that only record what is done to them: losses, copies of a peer, who is released."""

from __future__ import annotations

from itertools import accumulate, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import LAST_NS
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.engine import NO_MACHINE, SAMPLE, Engine
from kvcache_sim.scenario import fleet_events as events_of
from kvcache_sim.scenario.cluster_sections import FaultSection, FleetEventSection, FleetSection
from kvcache_sim.scenario.fleet_events import Fault, FleetEvent, drawn_faults, event_texts, fleet_events
from kvcache_sim.scenario.schema import ClusterSection, ScenarioModel
from kvcache_sim.scenario.yaml_tree import Tree as YamlTree
from kvcache_sim.serving.membership import losses, scaling
from kvcache_sim.serving.membership.losses import Losses, empty_caches, lose_tier
from kvcache_sim.serving.membership.membership import Membership
from kvcache_sim.serving.membership.plan import Flush, MembershipEvent, MembershipPlan, PoolLoss, TierLoss
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings
from kvcache_sim.serving.router.contract import Occupancy
from kvcache_sim.serving.sequence import Arrival
from support.examples import examples

TIERS = 4


class Tree:
    """The copies of the prompt of one request: by block the tiers that have it."""

    def __init__(self, blocks: list[set[int]], request: int = 0) -> None:
        self.blocks, self.request = blocks, request

    def copies(self, request: int, limit: int) -> list[tuple[int, list[int]]]:
        moves = [[NO_MOVE if tier in own else NO_COPY for tier in range(TIERS)] for own in self.blocks]
        if request != self.request:
            return []
        ends = [n for n in range(1, len(moves) + 1) if n == len(moves) or moves[n] != moves[n - 1]]
        return [(end, moves[end - 1]) for end in ends]

    def remove(self, request: int, part: tuple[int, int], tier: int) -> int:
        assert (request, 0 <= tier < TIERS) == (self.request, True)
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


def run_to(engine: Engine, at_ns: int) -> None:
    engine.schedule(at_ns, SAMPLE, NO_MACHINE, lambda _: None)
    engine.run(at_ns)


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


def test_losses_happen_in_order_of_time_until_all_requests_are_finished():
    engine, made, done = Engine(0), [], []
    machines = [replica(engine, machine) for machine in range(3)]
    trees = [Tree([{0, 3}, {1}], 6) for _ in machines]
    plan = MembershipPlan(
        flushes=(Flush(9, 1), Flush(15, None)), tier_losses=(TierLoss(5, 2, 3),),
        index_losses_ns=(5, 20, 30), pool_losses=(PoolLoss(9),),
    )  # fmt: skip
    lost = Losses(plan, machines, trees, engine, lambda: bool(done), 7)
    lost.of_pool(SimpleNamespace(lose=lambda requests: 100 * requests))

    def make():
        made.append(engine.now_ns)
        count = len(made)
        return SimpleNamespace(choose=lambda arrival: count)

    router = lost.around(make, lambda: made.append("index"))
    lost.start()
    for until_ns, left, choice in ((5, [3, 3, 2], 3), (10, [3, 0, 2], 3), (15, [0] * 3, 3), (20, [0] * 3, 5)):
        engine.run(until_ns)
        lost.closed(0)
        assert [sum(map(len, tree.blocks)) for tree in trees] == left
        assert router.choose(None) == choice
    assert made == [0, "index", 5, "index", 20]
    assert [one.called for one in machines] == [[15], [9, 15], [5, 15]]
    assert lost.counts == {"tiers_lost": 1, "blocks_lost": 709, "index_lost": 2, "flushes": 2}
    done.append(True)
    lost.closed(0)
    engine.run()
    assert (engine.now_ns, lost.counts["index_lost"]) == (20, 2)
    Losses(MembershipPlan(), machines, trees, engine, bool, 7).start()
    assert engine.idle


@pytest.mark.parametrize("counts", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)])
def test_an_engine_with_a_request_that_waits_runs_or_loads_keeps_its_cache(counts):
    assert empty_caches(replica(Engine(0), counts=lambda: counts), None, 1) == 0  # it has no store to empty


def test_an_engine_keeps_its_cache_while_another_machine_reads_a_request_of_it():
    store = SimpleNamespace(occupancy=lambda tier: SimpleNamespace(held_blocks=1))
    assert (
        empty_caches(replica(Engine(0), counts=lambda: [0] * 4, hands_over=True, store=store), None, 1) == 0
    )


@pytest.mark.parametrize(("keeps", "block", "kept"), [(True, 2, 1), (True, 1, 0), (False, 16, 0)])
@pytest.mark.parametrize("hands_over", [True, False])
def test_an_emptied_cache_keeps_the_page_that_its_engine_keeps_free(
    monkeypatch, keeps, block, kept, hands_over
):
    taken = []
    store = SimpleNamespace(
        occupancy=lambda tier: SimpleNamespace(free_blocks=4, cached_blocks=5, held_blocks=3 * (not hands_over)),
        acquire=lambda *asked: asked, release=lambda *asked: taken.append(asked), reserve=lambda *asked: taken.append(asked) or [],
    )  # fmt: skip
    own = replica(Engine(0), store=store, counts=lambda: (0, 0, 0, 7), hands_over=hands_over)
    own.cache.block_size_tokens = block
    monkeypatch.setattr(losses, "store_kind", lambda _: SimpleNamespace(keeps_page_free=keeps))
    assert (empty_caches(own, None, 1), taken) == (5, [((0, 0), 9 - kept, 0), ((0, 0), 0)])


class Requests:
    """The open requests of a fleet, and what becomes of them as (time, what, request)."""

    def __init__(self, members, count, engine):
        self.members, self.count, self.engine = members, count, engine
        self.open, self.closed, self.log = set(), 0, []

    open_requests = property(lambda self: len(self.open))

    def send(self, request):
        self.open.add(request)
        replica = self.members.choose(Arrival(request, 0, 1, 1))
        if replica is not None:
            self.log.append((self.engine.now_ns, replica.machine, request))

    def leave(self, request):
        self.open.discard(request)
        self.closed += 1
        self.members.closed(request, self.closed == self.count)

    def fail(self, request):
        self.log.append((self.engine.now_ns, "fails", request))
        self.leave(request)


@examples(200)
@given(
    st.lists(st.tuples(st.sampled_from(("join", "drain", "lose")), st.integers(0, 3)), max_size=7),
    st.lists(st.tuples(st.integers(0, 7), st.none() | st.integers(0, 9)), max_size=14),
    st.sampled_from(("retry", "fail")),
)
@example([("drain", 0), ("lose", 0)], [(0, None)] * 4, "retry")
@example([("lose", 0), ("lose", 2), ("join", 1), ("join", 3)], [(1, None), (0, None), (1, None)] * 2, "retry")
@example([("join", 3), ("join", 2), ("lose", 0)], [(2, None)] * 3, "retry")
@example([("lose", 1), ("lose", 2)], [(0, None), (0, None), (0, 0), (0, 0)], "retry")
@example([("lose", 1), ("lose", 3)], [(0, None)] * 3, "fail")
def test_machines_come_and_go_as_planned_and_their_requests_are_sent_again(changes, steps, in_flight):
    """Changes at odd times; at even ones a request comes to machine r modulo those that serve, or one leaves."""
    engine, routers, left, lost = Engine(4), [], [], []
    plan = MembershipPlan(
        events=tuple(MembershipEvent(2 * n + 1, *change) for n, change in enumerate(changes)), in_flight=in_flight
    )  # fmt: skip

    def router(own):
        routers.append((engine.now_ns, [one.machine for one in own]))
        return SimpleNamespace(choose=lambda arrival: arrival.request % len(own))

    machines = [replica(engine, n) for n in range(4)]
    members = Membership(plan, machines, router, engine)
    members.when_left(lambda *row: left.append(row))
    members.when_lost.append(lost.append)
    requests = Requests(members, sum(picked is None for _, picked in steps), engine)
    members.start(requests)
    # the same by hand
    serving = [n for n in range(4) if ("join", n) not in changes]
    here, held, log, made, gone, ended, came = {}, [], [], [(0, [*serving])] * bool(serving), [], 0, 0
    counts, chosen, losses, first_ns = dict.fromkeys(members.counts, 0), 0, [], None

    def close(request):
        nonlocal ended
        ended += 1
        if (machine := here.pop(request, None)) is not None:
            gone.append((machine, request, sum(own == machine for own in here.values())))

    def send(request, now, after):
        nonlocal chosen
        if serving:
            here[request] = serving[request % len(serving)]
            chosen += 1
            log.append((now, here[request], request))
        elif any(what == "join" for what, _ in changes[after:]):
            held.append(request)
        else:
            log.append((now, "fails", request))
            counts["failed"] += 1
            close(request)

    def change(n):
        nonlocal held
        (what, machine), now = changes[n], 2 * n + 1
        counts[{"join": "joined", "drain": "drained", "lose": "lost"}[what]] += 1
        serving[:] = sorted({*serving, machine}) if what == "join" else [m for m in serving if m != machine]
        made.extend([(now, [*serving])] * bool(serving))
        again, held = held, []
        if what == "lose":
            losses.append(machine)
            own = sorted(request for request, at in here.items() if at == machine)
            for request in own:
                del here[request]
            if in_flight == "retry":
                counts["retried"] += len(own)
                again += own
            for request in own if in_flight == "fail" else ():
                log.append((now, "fails", request))
                counts["failed"] += 1
                close(request)
        for request in again:
            send(request, now, n + 1)

    done = 0
    for at, picked in sorted(steps, key=lambda step: step[0]):
        run_to(engine, 2 * at)
        while done < min(at, len(changes)) and not (ended == requests.count and ended):
            change(done)
            done += 1
        if picked is None:
            first_ns = 2 * at if first_ns is None else first_ns
            requests.send(came)
            send(came, 2 * at, done)
            came += 1
        elif here:
            request = sorted(here)[picked % len(here)]
            requests.leave(request)
            close(request)
    engine.run()
    while done < len(changes) and not (ended == requests.count and ended):
        change(done)
        done += 1
    assert (requests.log, routers, left, lost) == (log, made, gone, losses)
    assert (members.counts, members.chosen, members.first_ns) == (counts, chosen, first_ns)
    assert members.requests_by_machine == [sum(own == n for own in here.values()) for n in range(4)]
    assert members.lost == set(losses)


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


@examples(200)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=4)),
        max_size=9,
    ),
    st.integers(1, 4),
    st.sampled_from((0, 10, 25)),
    st.sampled_from(((3, 0), (14, 0), (14, 3))),
    st.sampled_from((None, 0, 4, 31)),
)
@example([(3, [(True, 0), (False, 0)]), (1, []), (2, []), (1, [])], 1, 0, (14, 3), 0)
@example([(2, [(False, 1), (True, 1)]), (2, []), (1, [(True, 0)]), (3, []), (1, [])], 3, 0, (3, 0), 4)
@example(
    [(2, [(True, 0), (True, 0), (True, 1), (True, 1)]), (1, [(False, 1)]), (1, [(False, 1)])], 2, 0, (3, 0), 0
)
def test_a_fleet_follows_its_policy_by_hand(drawn, first, hold_ns, start, first_ns):
    """A decision each 10 ns; 5 ns later requests come (True) and leave; machines boot, and copy blocks of 4 ns."""
    (startup_ns, blocks), count, states, emptied = start, 4, [], []
    here, asked = [0] * count, iter(drawn)
    engine = Engine(0)
    report = Occupancy(
        [2**n for n in range(count)], [3 * n + 1 for n in range(count)], [n / 8 for n in range(count)]
    )
    policy = SimpleNamespace(wanted=lambda state: (states.append(state), next(asked, (first,))[0])[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "published_by", lambda replicas: lambda: report)
        patch.setattr(scaling, "SCALING", SimpleNamespace(make=lambda *_: policy))
        patch.setattr(
            scaling, "empty_caches", lambda replica, *_: emptied.append((engine.now_ns, replica.machine))
        )
        patch.setattr(scaling, "worth_copying", lambda *_: [scaling.Copied(0, blocks)] * bool(blocks))
        patch.setattr(scaling, "insert_copies", lambda _, copies, now_ns: sum(own.blocks for own in copies))
        machines = [replica(engine, n, store=None) for n in range(count)]
        members = Members(list(range(first)), here)
        members.first_ns = first_ns
        settings = ScalingSettings(
            "policy", first, 1, 3, interval_ns=10, hold_ns=hold_ns, startup_ns=startup_ns, warm_blocks=9, warm_block_ns=4
        )  # fmt: skip
        own = scaling.Scaling(
            settings, members, machines, [None] * count, SimpleNamespace(input_tokens=np.full(9, 40)), engine
        )
        own.start()
        # the same by hand: of each machine since when it is paid for, when it serves, and whether it drains
        paid, ready, draining, used = (
            dict.fromkeys(range(first), 0),
            dict.fromkeys(range(first), 0),
            set(),
            set(),
        )
        expected, changes, cleared, wanted_at, total_ns = [], [], [], [], 0
        counts = {"ordered": 0, "released": 0, "warmed_blocks": 0}

        def off(machine, now):
            nonlocal total_ns
            draining.discard(machine)
            del ready[machine]
            counts["released"] += 1
            changes.append((now, "off", machine))
            since = paid.pop(machine)
            total_ns += 0 if first_ns is None else now - max(since, first_ns)

        def come(since, until):
            for machine in sorted(ready, key=ready.get):
                boot_ns = ready[machine] - 4 * blocks
                if since < boot_ns <= until and machine in used:
                    cleared.append((boot_ns, machine))
                if since < ready[machine] <= until:
                    counts["warmed_blocks"] += blocks
                    changes.append((ready[machine], "serves", machine))
                    used.add(machine)

        for k, (wanted, steps) in enumerate(drawn):
            now = 10 * (k + 1)
            members.chosen = k * k
            engine.run(now)
            come(now - 5, now)
            serving = [n for n in sorted(ready) if ready[n] <= now and n not in draining]
            starting = sorted((n for n in ready if ready[n] > now), key=lambda n: (paid[n], n))
            load = [sum(own[n] for n in serving) for own in report]
            expected.append(
                (now, len(serving), len(starting), *load[:2], load[2] / len(serving), max(2 * k - 1, 0))
            )
            wanted_at.append((now, min(max(wanted, 1), 3)))
            held = max(most for at, most in wanted_at if at >= now - hold_ns)
            there = len(serving) + len(starting)
            for machine in [n for n in range(count) if n not in ready][: max(wanted_at[-1][1] - there, 0)]:
                counts["ordered"] += 1
                changes.append((now, "ordered", machine))
                paid[machine], ready[machine] = now, now + startup_ns + 4 * blocks
            release = max(there - held, 0) if wanted_at[-1][1] <= there else 0
            for machine in reversed(starting[-release:] if release else []):
                off(machine, now)
            for machine in sorted(serving, key=lambda n: (here[n], -n))[: max(release - len(starting), 0)]:
                changes.append((now, "drains", machine))
                used.add(machine)
                draining.add(machine)
                if not here[machine]:
                    off(machine, now)
            run_to(engine, now + 5)
            come(now, now + 5)
            for comes, machine in steps:
                if comes and machine in members.serving:
                    here[machine] += 1
                elif not comes and here[machine]:
                    here[machine] -= 1
                    members.left(machine, 0, here[machine])
                    if machine in draining and not here[machine]:
                        off(machine, now + 5)
        assert own.changes == changes
        assert (list(map(tuple, states)), emptied) == (expected, cleared)
        end = engine.now_ns
        for unpaid_ns in [
            0 if first_ns is None else sum(end - max(since, first_ns) for since in paid.values())
        ] * 2:
            assert own.counts == {**counts, "machine_ns": total_ns + unpaid_ns}
            own.over()
            run_to(engine, end + 50)
        assert own.changes == changes, "nothing is decided any more"


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
