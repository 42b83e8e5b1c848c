"""The plain store of ``spec/`` and the core's store, driven by the same operations, in all four eviction orders.

The state machine of ``test_store_machine.py`` gives both the same life; here it also touches, discards, expires,
writes what was used often, writes on, lends, receives and drops copies. After every step both must have given
the same answers, and the plain store's recount of its invariants must hold.
"""

from __future__ import annotations

from typing import ClassVar, get_args

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, Phase, reject, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test
from kvcache_sim import _core
from kvcache_sim.cache.settings import Touch
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.errors import StoreError, UsageError
from kvcache_sim.policies.tier_orders import choose_eviction
from kvcache_sim.spec import blocks
from kvcache_sim.spec.eviction import EvictionOrder
from kvcache_sim.spec.keys import Keys
from support.marked_store import MarkedStore
from test_store_machine import FORESTS, REQUEST, SEEN, SHAPES, StoreMachine

TIER = st.integers(0, 3)


def native_orders(policies: tuple[str, ...] | None, sizes: list[int | None]):
    """Return what the core's store takes for these policies."""
    orders = []
    for text, size in zip(policies or (), sizes, strict=bool(policies)):
        choice = choose_eviction(text, 1)
        blocks = 1 << 40 if size is None else size
        orders.append(None if choice is None else (choice.variant.name, choice.variant.native, blocks))
    return orders or None


class SpecMachine(StoreMachine):
    policies: ClassVar[tuple[str, ...] | None] = None
    plain_store: ClassVar[type[MarkedStore]] = MarkedStore

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
        self.native = _core.Store(
            _core.Keys(*arguments),
            sizes,
            back,
            native_orders(self.policies, sizes),
            self.touched_at,
            self.eviction_batch_blocks,
        )
        #: The plain store, under the name that the machine calls.
        self.reference = self.plain_store(
            Keys(arguments), sizes, back, self.policies, self.touched_at, self.eviction_batch_blocks
        )
        self.full = full.tolist()
        self.now = 0
        self.running = {}
        self.moves = {}
        self.loading = {}
        self.timed = set()
        self.claims = []

    def both(self, name: str, mine: tuple, theirs: tuple):
        """Call both stores; a sequence that asks for what the core's refuses is no test, but the plain one refuses it too."""
        try:
            a = getattr(self.native, name)(*mine)
        except StoreError:
            with pytest.raises(StoreError):
                getattr(self.reference, name)(*theirs)
            reject()
        return a, getattr(self.reference, name)(*theirs)

    def new_move(self, a: int | None, b: int | None) -> None:
        assert (a is None) == (b is None), (a, b)
        self.orders()
        if a is not None and a not in self.moves:  # it waits for nothing
            self.moves[a] = (b, set())

    def found(self, request: int, tier: int) -> int:
        """Return how many blocks lead to the last found one on a tier."""
        copies = self.copies(self.native, request, self.full[request])
        return max((end + 1 for end, by in enumerate(copies) if by[tier] != NO_COPY), default=0)

    def last_keys(self, paths: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(end, next(self.reference.keys.path(request, end - 1, end))) for request, end in paths]

    @precondition(lambda self: self.idle())
    @rule(pick=st.integers(0, 50))
    def finish(self, pick: int) -> None:
        request = self.idle()[pick % len(self.idle())]
        a, b, _ = self.running.pop(request)
        self.now += pick % 3
        self.both("release", (a, self.now), (b, self.now))

    @rule(request=REQUEST)
    def touch(self, request: int) -> None:
        end = len(self.copies(self.native, request, self.full[request]))
        self.both("touch", (request, end), (request, end))

    @rule(request=REQUEST, start=st.integers(0, 3))
    def discard(self, request: int, start: int) -> None:
        end = len(self.copies(self.native, request, self.full[request]))
        self.both("discard", (request, start, end), (request, start, end))

    @rule(ns=st.integers(0, 40))
    def expire(self, ns: int) -> None:
        self.now += ns
        if "ttl" not in str(self.policies):
            return
        before = sum(self.native.losses(t)[0] for t in range(len(self.capacities)))
        self.both("expire", (self.now,), (self.now,))
        after = sum(self.native.losses(t)[0] for t in range(len(self.capacities)))
        SEEN["a block lapses"] += after > before

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 50), tier=TIER, uses=st.integers(1, 3))
    def write_selected(self, pick: int, tier: int, uses: int) -> None:
        if tier + 1 < len(self.capacities):
            a, b, _ = list(self.running.values())[pick % len(self.running)]
            self.new_move(*self.both("write_selected", (a, tier, uses, self.now), (b, tier, uses, self.now)))

    @precondition(lambda self: self.moves)
    @rule(pick=st.integers(0, 50))
    def write_on(self, pick: int) -> None:
        move = list(self.moves)[pick % len(self.moves)]
        if not self.moves[move][1]:
            self.new_move(*self.both("write_on", (move, self.now), (self.moves[move][0], self.now)))

    @rule(request=REQUEST, tier=TIER)
    def lend(self, request: int, tier: int) -> None:
        if tier < len(self.capacities) and (end := self.found(request, tier)):
            self.new_move(*self.both("lend", (request, end, tier), (request, end, tier)))

    @precondition(lambda self: len(self.capacities) > 1)
    @rule(request=REQUEST, start=st.integers(0, 4), length=st.integers(1, 4))
    def receive(self, request: int, start: int, length: int) -> None:
        start = min(start, len(self.copies(self.native, request, self.full[request])))
        part = (start, min(start + length, self.full[request]))
        if part[0] < part[1]:
            self.now += 1
            self.new_move(*self.both("receive", (request, part, self.now), (request, part, self.now)))
            SEEN["received"] += 1

    @rule(request=REQUEST, start=st.integers(0, 4), tier=TIER)
    def drop_copy(self, request: int, start: int, tier: int) -> None:
        end = len(self.copies(self.native, request, self.full[request]))
        if 0 < tier < len(self.capacities) and start < end:
            self.both("drop_copy", (request, start, end, tier), (request, start, end, tier))

    @invariant()
    def all_answers_agree(self) -> None:
        if not hasattr(self, "native"):
            return
        assert self.native.merged_blocks == self.reference.merged_blocks
        for tier in range(len(self.capacities)):
            assert self.native.duplicates(tier) == self.reference.duplicates(tier)
        for a, (b, _) in self.moves.items():
            # each names a request on whose path the blocks are, maybe not the same one
            assert self.last_keys(self.native.moved_paths(a)) == self.last_keys(self.reference.moved_paths(b))
        number = {move: n for n, (move, _) in enumerate(self.moves.items())}
        plain = {b: number[a] for a, (b, _) in self.moves.items()}
        for request, limit in list(enumerate(self.full))[self.now % 8 :: 8]:
            for name, about in (("match_prefix", (limit,)), ("match_below", (self.now % 3, limit))):
                parts = getattr(self.native, name)(request, *about)
                assert [(*p[:3], number.get(p[3])) for p in parts] == [
                    (*p[:3], plain.get(p[3])) for p in getattr(self.reference, name)(request, *about)
                ]
            mine, theirs = (users(store, request, limit) for store in (self.native, self.reference))
            assert list(map(bool, mine)) == list(map(bool, theirs))
            assert mine == theirs or self.moves, "a move may use a path once for each of its blocks"


def users(store, request: int, limit: int) -> list[int]:
    counts: list[int] = []
    for end, holders, _ in store.uses(request, limit):
        counts += [holders] * (end - len(counts))
    return counts


SESSION = examples(12, stateful_step_count=80, suppress_health_check=list(HealthCheck))
ORDERS = {
    "lru": None,
    "fifo": ("fifo", "fifo", "lru", "fifo"),
    "lfu": ("lfu", "lfu", "lfu", "lfu"),
    "ttl": ("ttl:30ns", "ttl:60ns", "ttl:90ns", "ttl"),
    "mixed": ("lru", "ttl:20ns", "fifo", "lfu"),
}


def run(**facts) -> None:
    run_state_machine_as_test(type("Machine", (SpecMachine,), facts), settings=SESSION)


@pytest.mark.parametrize("touched_at", get_args(Touch))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_plain_store_is_the_cores(shape: str, touched_at: Touch) -> None:
    SEEN.clear()
    run(capacities=SHAPES[shape], touched_at=touched_at, **FORESTS.get(shape, {}))
    if SESSION.max_examples >= 120:
        assert SEEN["refusal"] or "unbounded" in shape
        assert SEEN["received"] or shape == "gpu only"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", [name for name in ORDERS if name != "lru"])
def test_it_is_so_in_the_other_eviction_orders(order: str, shape: str) -> None:
    SEEN.clear()
    policies = ORDERS[order][: len(SHAPES[shape])]
    run(capacities=SHAPES[shape], policies=policies, **FORESTS.get(shape, {}))
    assert SEEN["a block lapses"] or "ttl" not in str(policies)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocks", [4, 1 << 40])
def test_it_is_so_where_blocks_are_evicted_in_batches(blocks: int, order: str) -> None:
    policies = ORDERS[order] and ORDERS[order][:3]
    run(capacities=SHAPES["three tiers"], policies=policies, eviction_batch_blocks=blocks)


def test_it_is_so_without_writing_victims_down() -> None:
    run(capacities=SHAPES["three tiers"], write_back=False)


def test_an_order_that_is_not_covered_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"not covered.*got arc; expected lru, fifo, lfu or ttl"):
        EvictionOrder(0, "arc")


class EvictsUsedBlocks(MarkedStore):
    def _may_leave(self, block, copy):
        return copy.state == blocks.READY


class EvictsOneTooMany(MarkedStore):
    def _evict(self, tier, shortfall, now_ns):
        return super()._evict(tier, shortfall + 1, now_ns)


class ForgetsToOfferParents(MarkedStore):
    def _count_child(self, block, tier, change):
        block.parent.copies[tier].children += change


class MergesWithoutUse(MarkedStore):
    def _extend(self, held, key):
        tail = held.path[-1] if held.path else self.root
        if key in tail.children:
            held.path.append(tail.children[key])
            return tail.children[key]
        return super()._extend(held, key)


class KeepsOrphans(MarkedStore):
    def _discard_if_gone(self, block):
        if block.is_gone and not block.children and not block.is_in_use:
            self._remove_block(block)


class ForgetsMoveTimes(MarkedStore):
    def finish_move(self, move):
        self.moves[move].times = None
        super().finish_move(move)


class RenewsAtRelease(MarkedStore):
    def _touch(self, path, makes_recent):
        super()._touch(path, True)


FAULTS: dict[type[MarkedStore], Touch] = {
    EvictsUsedBlocks: "release",
    EvictsOneTooMany: "release",
    ForgetsToOfferParents: "release",
    MergesWithoutUse: "release",
    KeepsOrphans: "release",
    ForgetsMoveTimes: "release",
    RenewsAtRelease: "admission",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(fault: type[MarkedStore]) -> None:
    facts = {"capacities": SHAPES["three tiers"], "touched_at": FAULTS[fault], "plain_store": fault}
    machine = type("Machine", (SpecMachine,), facts)
    with pytest.raises(Exception):  # noqa: B017  # whichever check sees it first
        run_state_machine_as_test(
            machine, settings=settings(SESSION, max_examples=60, phases=[Phase.generate], print_blob=False)
        )
