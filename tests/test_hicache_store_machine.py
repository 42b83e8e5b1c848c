"""The native store of SGLang's tree with a host tier beside its reference, through whatever a machine may ask.

Requests are looked up, admitted with what they load and join, grow, compute and end; copies end in any order. After
every step both stores give the same answers, and each passes its own check.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from kvcache_sim import _core
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.errors import StoreError
from kvcache_sim.reference.engines.hicache_store import HiCacheSettings, ReferenceHiCacheStore
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.tiers import COMPUTE, STAGING
from test_store_machine import thicket

#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
REQUESTS = st.sampled_from([0, 1, 2, 3, 4, 6, 9, 12])
#: Pages that an answer adds at most.
ANSWER = 3


class HiCacheStores(RuleBasedStateMachine):
    strategy: ClassVar[str] = "lru"
    write: ClassVar[str] = "write_through"
    #: Tokens a page, and pages of the device and of the host.
    page: ClassVar[int] = 4
    pages: ClassVar[tuple[int, int]] = (30, 30)

    @initialize()
    def build(self) -> None:
        rows, following = thicket()
        flat: dict[int, int] = {}
        ids = np.array([flat.setdefault(i, len(flat)) for row in rows for i in row], np.uint32)
        offsets = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
        full = np.array([2 * len(row) for row in rows], np.uint32)
        arguments = (offsets, ids, 2, full, np.array(following, np.uint32))
        self.full = full.tolist()
        prompts = [pages * self.page + r % self.page for r, pages in enumerate(self.full)]
        wholes = [prompt + ANSWER * self.page for prompt in prompts]
        rules = HiCacheSettings(self.strategy, self.page, *self.pages, self.write)
        self.native = _core.HiCacheStore(
            _core.Keys(*arguments), (self.strategy, self.write), self.page, self.pages, (prompts, wholes)
        )
        self.reference = ReferenceHiCacheStore(ReferenceKeys(*arguments), rules, (prompts, wholes))
        for store in (self.native, self.reference):
            store.log_evictions()
        self.now = 0
        #: request → native lease, reference lease, pages that have room.
        self.running: dict[int, tuple[int, int, int]] = {}
        #: Moves under way, native and reference.
        self.moves: list[tuple[int, int]] = []
        #: Native moves that load.
        self.loads: set[int] = set()

    def both(self, name: str, mine: tuple[Any, ...], theirs: tuple[Any, ...] | None = None) -> Any:
        """Ask both the same; they answer alike, or refuse in the same line."""
        answers = []
        for store, given in ((self.native, mine), (self.reference, mine if theirs is None else theirs)):
            try:
                answers.append(getattr(store, name)(*given))
            except StoreError as refused:
                answers.append(str(refused))
        if name not in ("acquire", "load") or isinstance(answers[0], str) or isinstance(answers[1], str):
            assert self.named(answers[0], 0) == self.named(answers[1], 1), (name, mine)
        return answers

    def named(self, answer: Any, side: int) -> Any:
        """Return an answer with moves replaced by their places among those under way."""
        if isinstance(answer, list):
            return [self.named(each, side) for each in answer]
        if isinstance(answer, tuple) and len(answer) >= 4 and not hasattr(answer, "_fields"):
            return tuple(self.named(each, side) for each in answer)
        moves = {pair[side]: ("move", place) for place, pair in enumerate(self.moves)}
        return moves.get(answer, answer) if isinstance(answer, int) else answer

    def collect(self) -> None:
        """Take the orders of both, which are alike."""
        mine, theirs = self.native.take_orders(), self.reference.take_orders()
        self.moves += [(a[0], b[0]) for a, b in zip(mine, theirs, strict=True)]
        assert [self.named(order, 0) for order in mine] == [self.named(order, 1) for order in theirs]
        SEEN["write"] += any(order[1:3] == (COMPUTE, STAGING) for order in mine)

    @rule(request=REQUESTS, more=st.integers(0, 1))
    def admit(self, request: int, more: int) -> None:
        """As serving does: what is on its way is joined, what is on the host is loaded."""
        self.now += 1
        if request in self.running:
            found = self.native.peek(request, self.full[request])
            self.both("acquire", (request, found[1]))
            return
        limit = self.full[request] - 1
        found, ready = self.both("peek", (request, limit))[0]
        parts = self.both("match_prefix", (request, found))
        joined = sum(end - start for tier, start, end, by in parts[0] if tier == COMPUTE and by != NO_MOVE)
        mine, theirs = self.both("acquire", (request, ready))
        pages = self.full[request] + more - ready - joined
        room = self.both_reserve((mine, pages), (theirs, pages))
        if room is None:
            SEEN["refusal"] += 1
            self.both("abandon", (mine,), (theirs,))
            return
        SEEN["hit"] += ready > 0
        for (tier, _, end, by), (*_, reference_by) in zip(*parts, strict=True):
            if end <= ready:
                continue
            if tier == COMPUTE:
                SEEN["join"] += 1
                self.both("join", (mine, end), (theirs, end))
            else:
                SEEN["load"] += 1
                after = ([], []) if by == NO_MOVE else ([by], [reference_by])
                self.loads.add(self.both("load", (mine, end, after[0]), (theirs, end, after[1]))[0])
        self.collect()
        self.running[request] = (mine, theirs, self.full[request] + more)

    def both_reserve(self, mine: tuple[int, int], theirs: tuple[int, int]) -> list[int] | None:
        answers = [
            store.reserve(lease, pages, self.now)
            for store, (lease, pages) in ((self.native, mine), (self.reference, theirs))
        ]
        self.collect()
        assert self.named(answers[0], 0) == self.named(answers[1], 1)
        return answers[0]

    @rule(pages=st.lists(st.integers(0, 1), min_size=8, max_size=8))
    def grow_together(self, pages: list[int]) -> None:
        """As decoding does: all or nothing."""
        self.now += 1
        each = [
            (request, min(n, self.full[request] + ANSWER - self.running[request][2]))
            for request, n in zip(sorted(self.running), pages, strict=False)
        ]
        wanted = [[(self.running[request][side], n) for request, n in each] for side in (0, 1)]
        if len(each) == 1:
            room = self.both_reserve(wanted[0][0], wanted[1][0])
        else:
            answers = [
                store.reserve_many(asked, self.now)
                for store, asked in zip((self.native, self.reference), wanted, strict=True)
            ]
            self.collect()
            assert self.named(answers[0], 0) == self.named(answers[1], 1)
            room = answers[0]
        SEEN["refused together"] += room is None
        for request, n in each if room is not None else ():
            native, reference, held = self.running[request]
            self.running[request] = (native, reference, held + n)

    @rule(request=REQUESTS, pages=st.sampled_from([0, 1, 2, 5, 40]))
    def compute(self, request: int, pages: int) -> None:
        """End a step that computed some pages of a request."""
        self.now += 1
        if request in self.running:
            mine, theirs, held = self.running[request]
            to = min(self.native.depth(mine) + pages, held)
            merged = self.native.merged_blocks
            if pages:
                self.both("commit", (mine, to), (theirs, to))
            leases = list(self.running.values())
            self.both(
                "step_computed",
                ([one[0] for one in leases], self.now),
                ([one[1] for one in leases], self.now),
            )
            SEEN["merged"] += self.native.merged_blocks > merged
            self.collect()

    @rule(request=REQUESTS)
    def end(self, request: int) -> None:
        """End a request, whose KV has come by then."""
        self.now += 1
        if request in self.running:
            for loading in [pair for pair in self.moves if pair[0] in self.loads]:
                self.finish(self.moves.index(loading))
            mine, theirs, _ = self.running.pop(request)
            self.both("release", (mine, self.now), (theirs, self.now))
            self.collect()

    @rule(request=REQUESTS)
    def run_whole(self, request: int) -> None:
        if request not in self.running:
            self.admit(request, 1)
            self.compute(request, 40)
            self.end(request)

    @rule(which=st.integers(0, 99))
    def finish(self, which: int) -> None:
        if self.moves:
            mine, theirs = self.moves.pop(which % len(self.moves))
            self.both("finish_move", (mine,), (theirs,))

    @rule()
    def finish_all(self) -> None:
        while self.moves:
            self.finish(0)

    @rule(request=REQUESTS)
    def ask_too_much(self, request: int) -> None:
        if request in self.running:
            mine, theirs, held = self.running[request]
            assert isinstance(self.both("commit", (mine, held + 1), (theirs, held + 1))[0], str), "refused"
            assert isinstance(self.both("abandon", (mine,), (theirs,))[0], str), "refused"

    @invariant()
    def both_stores_agree(self) -> None:
        if not hasattr(self, "native"):
            return
        for name in ("digest", "merged_blocks"):
            assert getattr(self.native, name) == getattr(self.reference, name), name
        self.both("take_evictions", ())
        for tier in (COMPUTE, STAGING, STAGING + 1):
            self.both("room", (tier,))
            self.both("losses", (tier,))
            self.both("duplicates", (tier,))
        for request in [0, 1, 2, 3, 4, 6, 9, 12]:
            self.both("match_prefix", (request, 40))
            self.both("peek", (request, self.full[request] - 1))
        for mine, theirs, _ in self.running.values():
            self.both("depth", (mine,), (theirs,))
        SEEN["eviction"] += self.native.losses(COMPUTE).evicted_blocks > 0
        SEEN["host eviction"] += self.native.losses(STAGING).evicted_blocks > 0
        self.native.check()
        self.reference.check()

    def teardown(self) -> None:
        for request in sorted(getattr(self, "running", {})):
            self.end(request)
        if hasattr(self, "native"):
            self.finish_all()
            self.both_stores_agree()
            assert self.native.room(COMPUTE).active_blocks == 0
            assert self.native.room(STAGING).in_flight_blocks == 0


SESSION = examples(25, stateful_step_count=60, suppress_health_check=list(HealthCheck))
WRITES = ("write_through", "write_through_selective", "write_back")
SHAPES: dict[str, dict[str, Any]] = {
    **{f"{write}, pages of 4": {"write": write, "strategy": "lru"} for write in WRITES},
    **{f"{write}, little room": {"write": write, "pages": (22, 8), "strategy": "slru"} for write in WRITES},
    **{f"{write}, pages of 1": {"write": write, "page": 1, "strategy": "lfu"} for write in WRITES},
    **{
        f"{write}, pages of 16": {"write": write, "page": 16, "strategy": "fifo", "pages": (26, 60)}
        for write in WRITES
    },
    **{f"{write}, newest first": {"write": write, "strategy": "mru", "pages": (24, 16)} for write in WRITES},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_native_store_is_the_reference(shape: str) -> None:
    SEEN.clear()
    run_state_machine_as_test(type("Machine", (HiCacheStores,), SHAPES[shape]), settings=SESSION)
    missing = {case for case in ("hit", "write", "eviction") if not SEEN[case]}
    assert not missing, f"the session never saw: {sorted(missing)}"


class ForgetsDuplicates(ReferenceHiCacheStore):
    def _check_in(self, request: int, pages: int) -> None:
        super()._check_in(request, pages)
        self.merged_blocks = 0


class LetsGoTooSoon(ReferenceHiCacheStore):
    def finish_move(self, move: int) -> None:
        self._writing.clear()
        super().finish_move(move)


@pytest.mark.parametrize("fault", [ForgetsDuplicates, LetsGoTooSoon])
def test_a_planted_fault_is_caught(fault: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ReferenceHiCacheStore", fault)
    machine = type("Machine", (HiCacheStores,), SHAPES["write_through, pages of 4"])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            machine, settings=settings(SESSION, max_examples=60, phases=[Phase.generate], print_blob=False)
        )
