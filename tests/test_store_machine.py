"""The native store and the Python reference, side by side, through everything a scheduler may ask of them.

A state machine issues the operations of a machine's life: look up, admit, load, stage, write through, commit,
preempt, finish, let transfers end in any order. After every step both stores must give the same answers and
their own checks must hold. A session counts as a test only if the hard cases occurred in some run of it.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, get_args

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kvcache_sim import _core
from kvcache_sim.cache.settings import Touch
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.reference.store import ReferenceKeys, ReferenceStore
from kvcache_sim.tiers import STAGING
from kvcache_sim.workload.key_arrays import NO_NEXT_TURN

GPU = 0
#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
#: A request of the machine at hand.
REQUEST = st.runner().flatmap(lambda machine: st.sampled_from(machine.requests))


def thicket() -> tuple[list[list[int]], list[int]]:
    """Return the ids of 24 requests, a forest with common prefixes, and their next turns."""
    draw = np.random.default_rng(7)
    rows: list[list[int]] = []
    following = []
    for r in range(24):
        base = rows[int(draw.integers(r))] if r and draw.random() < 0.75 else []
        keep = base[: int(draw.integers(len(base) + 1))]
        rows.append(keep + [1000 * r + i for i in range(int(draw.integers(1, 5)))])
        following.append(NO_NEXT_TURN)
    for r in range(0, 20, 3):  # answers of r are what r + 3 shows after its own prompt
        rows[r + 3] = rows[r] + [5000 + 10 * r, 5001 + 10 * r]
        following[r] = r + 3
    return rows, following


def deep_trees() -> tuple[list[list[int]], list[int]]:
    """Return two trunks, and short twigs at every depth of them: requests that part ever further from the root."""
    trunks = [[100 * t + i for i in range(5)] for t in (1, 2)]
    twigs = [[*trunk[:depth], 10 * trunk[0] + depth] for trunk in trunks for depth in range(1, 6)]
    rows = [trunks[0], *twigs[:5], trunks[1], *twigs[5:]]
    return rows, [NO_NEXT_TURN] * len(rows)


class StoreMachine(RuleBasedStateMachine):
    capacities: tuple[int | None, ...] = (12, 9, 20)
    write_back = True
    touched_at = "release"
    eviction_batch_blocks = 1
    #: Ids of each request, two blocks an id, and the request whose prompt shows its answer.
    paths = staticmethod(thicket)
    requests: ClassVar[list[int]] = [0, 1, 2, 3, 4, 6, 9, 12]

    @initialize()
    def build(self) -> None:
        rows, following = self.paths()
        flat: dict[int, int] = {}
        ids = np.array([flat.setdefault(i, len(flat)) for row in rows for i in row], np.uint32)
        offsets = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
        full = np.array([2 * len(row) for row in rows], np.uint32)
        arguments = (offsets, ids, 2, full, np.array(following, np.uint32))
        sizes = list(self.capacities)
        back = [self.write_back] * (len(sizes) - 1) + [False]
        rules = {"eviction_batch_blocks": self.eviction_batch_blocks}
        self.native = _core.Store(_core.Keys(*arguments), sizes, back, touch=self.touched_at, **rules)
        self.reference = ReferenceStore(ReferenceKeys(*arguments), sizes, back, self.touched_at, **rules)
        self.full = full.tolist()
        self.now = 0
        #: request → (native lease, reference lease, reserved blocks)
        self.running: dict[int, list[int]] = {}
        #: native move → (reference move, moves that must end first); the stores give an ended move's id out again
        self.moves: dict[int, tuple[int, set[int]]] = {}
        self.loading: dict[int, set[int]] = {}
        #: Moves whose times were told.
        self.timed: set[int] = set()
        #: Claims that wait for room: native, reference, moves that must end first.
        self.claims: list[tuple[int, int, set[int]]] = []

    def both(self, name: str, mine: tuple, theirs: tuple):
        a = getattr(self.native, name)(*mine)
        b = getattr(self.reference, name)(*theirs)
        return a, b

    def orders(self) -> None:
        mine, theirs = self.native.take_orders(), self.reference.take_orders()
        assert [o[1:4] for o in mine] == [o[1:4] for o in theirs]
        for a, b in zip(mine, theirs, strict=True):
            self.moves[a[0]] = (b[0], set(a[4]))
            SEEN[f"move {a[1]}->{a[2]}"] += 1
            SEEN["a write waits for another"] += bool(a[4])

    def room(self, name: str, mine: tuple, theirs: tuple) -> set[int] | None:
        before = [self.native.losses(t)[0] for t in range(len(self.capacities))]
        a, b = self.both(name, mine, theirs)
        assert (a is None) == (b is None), (a, b)
        evicted = [self.native.losses(t)[0] for t in range(len(self.capacities))]
        SEEN["refusal"] += a is None
        SEEN["eviction beside a hold"] += evicted != before and bool(self.running)
        self.orders()
        if a is None:
            return None
        assert len(a) == len(b)
        return set(a)

    @rule(request=REQUEST, output=st.integers(0, 3), take=st.integers(1, 3))
    def admit(self, request: int, output: int, take: int) -> None:
        if request in self.running:
            return
        self.now += 1
        limit = self.full[request]
        assert self.native.peek(request, limit) == self.reference.peek(request, limit)
        mine, theirs = self.native.match_prefix(request, limit), self.reference.match_prefix(request, limit)
        assert [(p[0], p[1], p[2], p[3] == NO_MOVE) for p in mine] == [
            (p[0], p[1], p[2], p[3] == NO_MOVE) for p in theirs
        ]
        ready = mine[0][2] if mine and mine[0][0] == GPU and mine[0][3] == NO_MOVE else 0
        lower = (
            [p for p in mine if p[0] != GPU][:take]
            if all(p[0] == GPU for p in mine[:1]) or ready == 0
            else []
        )
        joined = [p for p in mine if p[0] == GPU and p[3] != NO_MOVE]
        holds = [(p[0], self.both("protect", (request, p[2], p[0]), (request, p[2], p[0]))) for p in lower]
        a, b = self.both("acquire", (request, ready), (request, ready))
        need = limit + output - ready - sum(p[2] - p[1] for p in joined)
        room = self.room("reserve", (a, need, self.now), (b, need, self.now))
        if room is None:
            self.both("abandon", (a,), (b,))
        else:
            self.running[request] = [a, b, need]
            self.loading[request] = set(room)
            for p in joined:
                self.both("join", (a, p[2]), (b, p[2]))
                self.loading[request].add(p[3])
            self.take_lower(request, lower, room)
        for tier, (x, y) in holds:
            self.both("unprotect", (tier, x), (tier, y))
        self.orders()

    def take_lower(self, request: int, lower: list, room: set[int]) -> None:
        a, b, _ = self.running[request]
        for tier, start, end, by in lower:
            after = sorted(room)
            waits = [] if by == NO_MOVE else [by]
            for upper in range(tier - 1, GPU, -1):
                references = [self.moves[m][0] for m in waits]
                x, y = self.both(
                    "stage",
                    (request, (start, end), upper, waits[0] if waits else None, self.now),
                    (request, (start, end), upper, references[0] if references else None, self.now),
                )
                assert (x is None) == (y is None)
                self.orders()
                if x is None:
                    return
                waits = [x]
            after += waits
            x, _ = self.both(
                "load", (a, end, after), (b, end, [self.moves[m][0] for m in after if m in self.moves])
            )
            self.orders()
            self.loading[request].add(x)
            self.running[request][2] -= end - start

    @precondition(lambda self: self.moves)
    @rule(pick=st.integers(0, 50))
    def end_a_move(self, pick: int) -> None:
        open_moves = [m for m, (_, after) in self.moves.items() if not after]
        move = open_moves[pick % len(open_moves)]
        reference, _ = self.moves.pop(move)
        if pick % 3 or move in self.timed:
            self.both(
                "set_times", (move, self.now - pick % 2, self.now), (reference, self.now - pick % 2, self.now)
            )
        self.timed.discard(move)
        self.both("finish_move", (move,), (reference,))
        for _, after in self.moves.values():
            after.discard(move)
        for *_, after in self.claims:
            after.discard(move)
        for waits in self.loading.values():
            waits.discard(move)

    @precondition(lambda self: self.moves)
    @rule(pick=st.integers(0, 50), layers_ns=st.integers(0, 9))
    def time_a_move(self, pick: int, layers_ns: int) -> None:
        """A transmission's times are known before it ends."""
        move = list(self.moves)[pick % len(self.moves)]
        first, ready = self.now + 1_000_000 + pick, self.now + 1_000_000 + pick + layers_ns
        self.both("set_times", (move, first, ready), (self.moves[move][0], first, ready))
        self.timed.add(move)

    @precondition(lambda self: len(self.capacities) > 1)
    @rule(
        request=REQUEST,
        tier=st.integers(0, 3),
        span=st.tuples(st.integers(0, 3), st.integers(1, 3)),
        source=st.none() | st.integers(0, 3),
    )
    def mark_present(self, request: int, tier: int, span: tuple[int, int], source: int | None) -> None:
        """Claim room, place blocks there or give it back at once; they are ready when the move ends."""
        start, end = span[0], min(span[0] + span[1], self.full[request])
        if max(tier, source or 0) >= len(self.capacities) or end <= start:
            return
        self.now += 1
        before = [self.native.losses(t)[0] for t in range(len(self.capacities))]
        a, b = self.both("claim", (tier, end - start, self.now), (tier, end - start, self.now))
        assert (a is None) == (b is None)
        self.orders()
        if a is None or b is None:
            return
        evicted = [self.native.losses(t)[0] for t in range(len(self.capacities))]
        SEEN["a claim evicts"] += evicted != before
        assert len(a[1]) == len(b[1])
        x, y = self.both(
            "place", (a[0], request, (start, end), source), (b[0], request, (start, end), source)
        )
        assert x == y
        if x:
            SEEN["marked by hand"] += 1
            self.moves[a[0]] = (b[0], set(a[1]))
            assert self.native.moved_keys(a[0]) == self.reference.moved_keys(b[0])
        elif not a[1]:
            self.both("give_back", (a[0],), (b[0],))
        else:  # what was evicted for it is still being written
            self.claims.append((a[0], b[0], set(a[1])))

    @rule(tier=st.integers(0, 3), blocks=st.integers(1, 12))
    def take_room(self, tier: int, blocks: int) -> None:
        """Claim room that several victims must leave."""
        if tier >= len(self.capacities):
            return
        self.now += 1
        a, b = self.both("claim", (tier, blocks, self.now), (tier, blocks, self.now))
        assert (a is None) == (b is None)
        self.orders()
        if a is not None and b is not None:
            assert len(a[1]) == len(b[1])
            self.claims.append((a[0], b[0], set(a[1])))

    @precondition(lambda self: self.claims)
    @rule()
    def give_room_back(self) -> None:
        mine, theirs, after = self.claims[0]
        if not after:
            self.both("give_back", (mine,), (theirs,))
            self.claims.pop(0)
            SEEN["room given back"] += 1

    @rule(
        request=REQUEST,
        tier=st.integers(0, 3),
        span=st.tuples(st.integers(0, 3), st.integers(1, 4)),
    )
    def mark_absent(self, request: int, tier: int, span: tuple[int, int]) -> None:
        part = (span[0], min(span[0] + span[1], self.full[request]))
        if tier < len(self.capacities) and part[0] < part[1]:
            x, y = self.both("remove", (request, part, tier), (request, part, tier))
            assert x == y
            SEEN["marked absent"] += x > 0

    def idle(self) -> list[int]:
        return [r for r in self.running if not self.loading[r]]

    @precondition(lambda self: self.idle())
    @rule(pick=st.integers(0, 50), blocks=st.integers(1, 6), through=st.booleans())
    def commit(self, pick: int, blocks: int, through: bool) -> None:
        self.commit_of(self.idle()[pick % len(self.idle())], blocks, through)

    def commit_of(self, request: int, blocks: int, through: bool) -> None:
        a, b, reserved = self.running[request]
        depth = self.native.depth(a)
        assert depth == self.reference.depth(b)
        take = min(blocks, reserved)
        merged = self.native.merged_blocks
        ready = (self.now - blocks % 2, self.now) if blocks % 3 else None
        self.both("commit", (a, depth + take, ready), (b, depth + take, ready))
        SEEN["duplicate merged"] += self.native.merged_blocks > merged
        self.running[request][2] -= take
        if take and through and len(self.capacities) > 1:
            x, y = self.both(
                "write_through", (a, depth, depth + take, self.now), (b, depth, depth + take, self.now)
            )
            assert (x is None) == (y is None)
            self.orders()

    @precondition(lambda self: self.idle())
    @rule(pick=st.integers(0, 50))
    def ask_for_a_block(self, pick: int) -> None:
        request = self.idle()[pick % len(self.idle())]
        a, b, _ = self.running[request]
        self.now += 1
        room = self.room("reserve_many", ([(a, 1)], self.now), ([(b, 1)], self.now))
        if room is not None:
            self.running[request][2] += 1
            self.loading[request] |= room

    @precondition(lambda self: self.idle())
    @rule(pick=st.integers(0, 50))
    def finish(self, pick: int) -> None:
        request = self.idle()[pick % len(self.idle())]
        a, b, _ = self.running.pop(request)
        self.both("release", (a, 0), (b, 0))

    @rule(
        request=REQUEST,
        pieces=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=5),
        written=st.booleans(),
    )
    def run_a_request(self, request: int, pieces: list[tuple[int, bool]], written: bool) -> None:
        """From the admission to the release, some of what it computes written through, maybe before its end."""
        if request in self.running:
            return
        self.admit(request, 0, 3)
        while request in self.running and self.loading[request]:
            self.end_a_move(0)
        for blocks, through in pieces if request in self.running else []:
            self.commit_of(request, blocks, through)
        while written and self.moves:
            self.end_a_move(0)
        if request in self.running:
            a, b, _ = self.running.pop(request)
            self.both("release", (a, 0), (b, 0))

    @invariant()
    def both_stores_agree(self) -> None:
        if not hasattr(self, "native"):
            return
        self.native.check()
        self.reference.check()
        for tier, capacity in enumerate(self.capacities):
            assert self.native.room(tier) == self.reference.room(tier)
            assert self.native.losses(tier) == self.reference.losses(tier)
            if capacity is not None:
                assert sum(self.native.room(tier)[:4]) == capacity
        assert self.native.digest == self.reference.digest
        for request, limit in list(enumerate(self.full))[self.now % 8 :: 8]:
            assert self.copies(self.native, request, limit) == self.copies(self.reference, request, limit)
            assert self.residency(self.native, request, limit) == self.residency(
                self.reference, request, limit
            )
            assert self.recency(self.native, request, limit) == self.recency(self.reference, request, limit)

    def copies(self, store, request: int, limit: int) -> list[list[int]]:
        """Return of each found block whether each tier's copy is ready, in flight or none."""
        blocks = []
        for end, by in store.copies(request, limit):
            blocks += [[move if move in (NO_COPY, NO_MOVE) else 0 for move in by]] * (end - len(blocks))
        return blocks

    def residency(self, store, request: int, limit: int) -> list[list[tuple]]:
        """Return of each found block its copies: tier, whether ready, both times and its last access."""
        blocks: list[list[tuple]] = []
        for end, copies in store.residency(request, limit):
            told = [(tier, move == NO_MOVE, *times) for tier, move, *times in copies]
            blocks += [told] * (end - len(blocks))
            SEEN["a ready copy by its times"] += any(ready and at > 0 for _, ready, _, at, _ in told)
            SEEN["a timed copy in flight"] += any(not ready and at < 1 << 62 for _, ready, _, at, _ in told)
        return blocks

    def recency(self, store, request: int, limit: int) -> list[int]:
        """Return of each found block the count of what made its fastest copy recent."""
        blocks: list[int] = []
        for end, _, access in store.uses(request, limit):
            blocks += [access] * (end - len(blocks))
        return blocks

    def teardown(self) -> None:
        """Everything ends: no holder, no reservation and nothing in flight is left."""
        if not hasattr(self, "native"):
            return
        while self.moves:
            self.end_a_move(0)
        while self.claims:
            self.give_room_back()
        for request in list(self.running):
            a, b, _ = self.running.pop(request)
            self.both("release", (a, 0), (b, 0))
        self.both_stores_agree()
        for tier in range(len(self.capacities)):
            _, active, cached, in_flight, evictable = self.native.room(tier)
            assert (active, in_flight) == (0, 0)
            assert cached == evictable


SESSION = examples(80, stateful_step_count=80, suppress_health_check=list(HealthCheck))
MUST_HAPPEN = {
    "gpu only": {"refusal", "eviction beside a hold", "duplicate merged"},
    "two tiers": {"refusal", "eviction beside a hold", "move 0->1", "move 1->0"},
    "three tiers": {
        "refusal", "eviction beside a hold", "move 0->1", "move 1->0", "move 1->2", "move 2->1",
        "a write waits for another", "a timed copy in flight", "marked by hand", "marked absent", "a claim evicts", "room given back",
    },
    "tiny lower tiers": {"refusal", "move 0->1", "move 1->2"},
    "unbounded disk": {"move 1->2", "move 2->1"},
    "deep trees": {"refusal", "move 0->1", "move 1->2", "a claim evicts"},
    "four tiers": {"refusal", "move 0->1", "move 1->2", "move 2->3"},
}  # fmt: skip
SHAPES = {
    "gpu only": (20,),
    "two tiers": (12, 16),
    "three tiers": (12, 9, 20),
    "tiny lower tiers": (12, 1, 2),
    "unbounded disk": (12, 6, None),
    "deep trees": (14, 16, 40),
    "four tiers": (12, 8, 6, 20),
}
#: Where the requests are others than those of the thicket.
FORESTS = {"deep trees": {"paths": staticmethod(deep_trees), "requests": list(range(12))}}


@pytest.mark.parametrize("touched_at", get_args(Touch))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_native_store_is_the_reference(shape: str, touched_at: Touch) -> None:
    SEEN.clear()
    facts = {"capacities": SHAPES[shape], "touched_at": touched_at, **FORESTS.get(shape, {})}
    run_state_machine_as_test(type("Machine", (StoreMachine,), facts), settings=SESSION)
    missing = (
        {case for case in MUST_HAPPEN[shape] if not SEEN[case]} if SESSION.max_examples >= 120 else set()
    )
    assert not missing, f"the session never saw: {sorted(missing)}"


@pytest.mark.parametrize("blocks", [4, 1 << 40])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_so_where_blocks_are_evicted_in_batches(shape: str, blocks: int) -> None:
    facts = {"capacities": SHAPES[shape], "eviction_batch_blocks": blocks, **FORESTS.get(shape, {})}
    run_state_machine_as_test(type("Machine", (StoreMachine,), facts), settings=SESSION)


def test_of_two_bared_parents_the_deeper_leaves_first() -> None:
    """On the cpu: a, x behind it, d, y behind that, but not c between a and d. One request used a, c and d last."""
    facts = {
        "capacities": (40, 8, 40),
        "paths": staticmethod(lambda: ([[*"acd"], [*"ax"], [*"acdy"]], [NO_NEXT_TURN] * 3)),
        "requests": [0, 1, 2],
    }
    machine = type("Machine", (StoreMachine,), facts)()
    machine.build()
    machine.run_a_request(1, [(2, True), (2, True)], True)
    machine.run_a_request(2, [(2, False), (2, True), (2, True)], True)
    machine.run_a_request(0, [], True)
    machine.take_room(STAGING, 6)  # x, y, and one of their parents, which are equally recent
    machine.both_stores_agree()
    on_cpu = [by[STAGING] != NO_COPY for by in machine.copies(machine.native, 2, 8)]
    assert on_cpu == [True, True, False, False, False, False, False, False]
    machine.teardown()


class EvictsHeldBlocks(ReferenceStore):
    def _may_go(self, block, tier):
        return block.state[tier] == 2


class EvictsOneTooMany(ReferenceStore):
    def _select(self, tier, blocks):
        return super()._select(tier, blocks + 1 if blocks else 0)


class ShallowestFirst(ReferenceStore):
    def _select(self, tier, blocks):
        return sorted(super()._select(tier, blocks), key=lambda b: (b.access[tier], b.depth))


class ForgetsRecency(ReferenceStore):
    def release(self, lease, now_ns):
        self.clock -= 1000
        super().release(lease, now_ns)
        self.clock += 1000


class ForgetsWhenComputed(ReferenceStore):
    def commit(self, lease, to, ready=None):
        super().commit(lease, to)


class ForgetsWhenMovesEnd(ReferenceStore):
    def finish_move(self, move):
        self.moves[move].times = None
        super().finish_move(move)


class RenewsAtRelease(ReferenceStore):
    def release(self, lease, now_ns):
        self.touched_at = "release"
        super().release(lease, now_ns)
        self.touched_at = "admission"


class ForgetsWhatAdmissionsFind(ReferenceStore):
    def _admitted(self, lease, now_ns):
        pass


class RenewsAtARefusal(ReferenceStore):
    def acquire(self, request, depth):
        lease = super().acquire(request, depth)
        self._admitted(self.leases[lease], self.now_ns)
        return lease


FAULTS: dict[type[ReferenceStore], Touch] = {
    EvictsHeldBlocks: "release",
    EvictsOneTooMany: "release",
    ShallowestFirst: "release",
    ForgetsRecency: "release",
    ForgetsWhenComputed: "release",
    ForgetsWhenMovesEnd: "release",
    RenewsAtRelease: "admission",
    ForgetsWhatAdmissionsFind: "admission",
    RenewsAtARefusal: "admission",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: type[ReferenceStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ReferenceStore", fault)
    shape = {"capacities": SHAPES["three tiers"], "touched_at": FAULTS[fault]}
    machine = type("Machine", (StoreMachine,), shape)
    with pytest.raises(Exception):  # noqa: B017  # whichever check sees it first
        run_state_machine_as_test(
            machine, settings=settings(SESSION, max_examples=40, phases=[Phase.generate], print_blob=False)
        )
