"""Rules of a fleet on machines that only record what is done to them: losses, copies of a peer, who is released."""

from __future__ import annotations

from itertools import accumulate, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.engine import Engine
from kvcache_sim.serving.membership import losses, scaling
from kvcache_sim.serving.membership.losses import Losses, empty_caches, lose_tier
from kvcache_sim.serving.membership.membership import Membership
from kvcache_sim.serving.membership.plan import Flush, MembershipEvent, MembershipPlan, TierLoss
from kvcache_sim.serving.membership.scaling_policy.settings import ScalingSettings
from kvcache_sim.serving.router.contract import Occupancy
from kvcache_sim.serving.sequence import Arrival

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
