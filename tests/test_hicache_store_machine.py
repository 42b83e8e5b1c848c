"""The native store of SGLang's tree with a host tier beside its reference, through whatever a machine may ask.

Requests are looked up, admitted with what they load and join, grow, compute and end; copies end in any order. After
every step both stores give the same answers, and each passes its own check.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.reference.engines.hicache_storage_store import StoredHiCacheStore
from kvcache_sim.reference.engines.hicache_store import HiCacheSettings, ReferenceHiCacheStore
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.tiers import COMPUTE, STAGING
from test_store_machine import thicket
from told import told

#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
REQUESTS = [0, 1, 2, 3, 4, 6, 9, 12]
#: Pages that an answer adds at most.
ANSWER = 3


class HiCacheStores:
    """Both stores, and a walk of so many random steps through them."""

    strategy: ClassVar[str] = "lru"
    write: ClassVar[str] = "write_through"
    #: Tokens a page, and pages of the device and of the host.
    page: ClassVar[int] = 4
    pages: ClassVar[tuple[int, int]] = (30, 30)
    #: Pages of a storage, the fewest tokens worth a prefetch, and the share of the host that prefetches have.
    storage: ClassVar[tuple[int, int, float] | None] = None
    #: What some walk must have seen.
    sees: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        rows, following = thicket()
        flat: dict[int, int] = {}
        ids = np.array([flat.setdefault(i, len(flat)) for row in rows for i in row], np.uint32)
        offsets = np.cumsum([0] + [len(row) for row in rows]).astype(np.int64)
        full = np.array([2 * len(row) for row in rows], np.uint32)
        arguments = (offsets, ids, 2, full, np.array(following, np.uint32))
        self.full = full.tolist()
        prompts = [pages * self.page + r % self.page for r, pages in enumerate(self.full)]
        wholes = [prompt + ANSWER * self.page for prompt in prompts]
        below, make, own = (), ReferenceHiCacheStore, None
        if self.storage is not None:
            room, threshold, share = below = self.storage
            make, own = (
                StoredHiCacheStore,
                (room, -(-threshold // self.page), int(share * self.pages[1] * self.page)),
            )
        rules = HiCacheSettings(self.strategy, self.page, *self.pages, self.write, *below)
        self.native = _core.HiCacheStore(
            _core.Keys(*arguments), (self.strategy, self.write), self.page, self.pages, (prompts, wholes), own
        )
        self.reference = make(ReferenceKeys(*arguments), rules, (prompts, wholes))
        for store in (self.native, self.reference):
            store.log_evictions()
        #: By tier, pages of the evictions that were logged.
        self.logged: Counter[int] = Counter()
        self.now = 0
        #: request → native lease, reference lease, pages that have room.
        self.running: dict[int, tuple[int, int, int]] = {}
        #: Moves under way, native and reference.
        self.moves: list[tuple[int, int]] = []
        #: Native moves that load.
        self.loads: set[int] = set()

    def both(self, name: str, mine: tuple[Any, ...], theirs: tuple[Any, ...] | None = None) -> Any:
        """Ask both the same; they answer alike, or refuse in the same line."""
        other = mine if theirs is None else theirs
        answers = [told(self.native, name, mine), told(self.reference, name, other)]
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
        for number, (move, *_) in enumerate(mine):
            self.native.set_times(move, self.now, self.now + number)
            self.reference.set_times(theirs[number][0], self.now, self.now + number)
        SEEN["write"] += any(order[1:3] == (COMPUTE, STAGING) for order in mine)

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

    def end(self, request: int) -> None:
        """End a request, whose KV has come by then."""
        self.now += 1
        if request in self.running:
            for loading in [pair for pair in self.moves if pair[0] in self.loads]:
                self.finish(self.moves.index(loading))
            mine, theirs, _ = self.running.pop(request)
            self.both("release", (mine, self.now), (theirs, self.now))
            self.collect()

    def run_whole(self, request: int) -> None:
        if request not in self.running:
            self.admit(request, 1)
            self.compute(request, 40)
            self.end(request)
            if self.storage is not None:
                self.finish_all()

    def finish(self, which: int) -> None:
        if self.moves:
            mine, theirs = self.moves.pop(which % len(self.moves))
            self.both("finish_move", (mine,), (theirs,))
            self.collect()

    def prefetch(self, request: int, pages: int) -> None:
        if self.storage is None or self.native.is_prefetching(request):
            return
        self.now += 1
        asked = self.both("start_prefetch", (request, min(pages, self.full[request]), self.now))[0]
        SEEN["prefetch"] += asked > 0
        self.collect()

    def stop(self, request: int) -> None:
        """End a prefetch with what has come."""
        if self.storage is not None:
            asked = [request, *REQUESTS]
            fetching = [one for one in asked if self.both("is_prefetching", (one,))[0]]
            for one in fetching[:1]:
                SEEN["stopped"] += 1
                self.both("stop_prefetch", (one,))

    def finish_all(self) -> None:
        while self.moves:
            self.finish(0)

    def ask_too_much(self, request: int) -> None:
        if request in self.running:
            mine, theirs, held = self.running[request]
            assert isinstance(self.both("commit", (mine, held + 1), (theirs, held + 1))[0], str), "refused"
            assert isinstance(self.both("abandon", (mine,), (theirs,))[0], str), "refused"

    def both_stores_agree(self) -> None:
        names = ["digest", "merged_blocks"] + (["prefetched_blocks"] if self.storage is not None else [])
        for name in names:
            assert getattr(self.native, name) == getattr(self.reference, name), name
        for _, tier, pages in self.both("take_evictions", ())[0]:
            self.logged[tier] += pages
        for tier in (COMPUTE, STAGING):
            assert self.native.losses(tier).evicted_blocks == self.logged[tier], "each has its event"
        for tier in (COMPUTE, STAGING, STAGING + 1, STAGING + 2):
            self.both("room", (tier,))
            self.both("losses", (tier,))
            self.both("duplicates", (tier,))
        for request in REQUESTS:
            self.both("match_prefix", (request, 40))
            self.both("peek", (request, self.full[request] - 1))
        for mine, theirs, _ in self.running.values():
            self.both("depth", (mine,), (theirs,))
        SEEN["eviction"] += self.native.losses(COMPUTE).evicted_blocks > 0
        if self.storage is not None:
            SEEN["storage eviction"] += self.native.losses(STAGING + 1).evicted_blocks > 0
        SEEN["host eviction"] += self.native.losses(STAGING).evicted_blocks > 0
        self.native.check()
        self.reference.check()

    def walk(self, seed: int, steps: int) -> None:
        """Take random steps, and end what runs."""
        draw = Random(seed)
        for _ in range(steps):
            request = draw.choice(REQUESTS)
            step = draw.choices(list(STEPS), list(STEPS.values()))[0]
            if step == "grow_together":
                self.grow_together([draw.randrange(2) for _ in REQUESTS])
            elif step == "compute":
                self.compute(request, draw.choice([0, 1, 2, 5, 40]))
            elif step == "admit":
                self.admit(request, draw.randrange(2))
            elif step == "prefetch":
                self.prefetch(request, draw.choice([1, 3, 40, 40, 40]))
            elif step == "finish":
                self.finish(draw.randrange(100))
            elif step == "finish_all":
                self.finish_all()
            else:
                getattr(self, step)(request)
            self.both_stores_agree()
        for request in sorted(self.running):
            self.end(request)
        self.finish_all()
        self.both_stores_agree()
        assert self.native.room(COMPUTE).active_blocks == 0
        assert self.native.room(STAGING).in_flight_blocks == 0


#: How often each step is taken.
STEPS = {
    "admit": 4, "compute": 6, "end": 3, "run_whole": 4, "grow_together": 4, "finish": 8, "finish_all": 1,
    "prefetch": 3, "stop": 1, "ask_too_much": 1,
}  # fmt: skip
WRITES = ("write_through", "write_through_selective", "write_back")
SHAPES: dict[str, dict[str, Any]] = {
    "pages of 4": {"sees": ("load", "merged")},
    "little room": {"pages": (22, 8), "strategy": "slru"},
    "pages of 1": {"page": 1, "strategy": "lfu"},
    "pages of 16": {"page": 16, "strategy": "fifo", "pages": (26, 60), "sees": ("load",)},
    "newest first": {"strategy": "mru", "pages": (24, 16)},
    "storage": {"pages": (40, 10), "storage": (200, 4, 1.0)},
    "little storage": {"strategy": "lfu", "pages": (24, 20), "storage": (20, 4, 0.5), "sees": ("load",)},
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_native_store_is_the_reference(shape: str, write: str) -> None:
    SEEN.clear()
    stores = type("Stores", (HiCacheStores,), {**SHAPES[shape], "write": write})

    @examples(3)
    @given(st.integers(0, 1 << 32))
    def walks(seed: int) -> None:
        stores().walk(seed, 200)

    walks()
    missing = {case for case in ("hit", "write", "eviction", *stores.sees) if not SEEN[case]}
    assert not missing, f"no walk ever saw: {sorted(missing)}"


def test_what_is_in_the_storage_alone_comes_back() -> None:
    SEEN.clear()
    for write in WRITES:
        type("Stores", (HiCacheStores,), {**SHAPES["storage"], "write": write})().walk(3, 300)
    assert SEEN["prefetch"]
    assert SEEN["stopped"]


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
    stores = type("Stores", (HiCacheStores,), SHAPES["pages of 4"])
    with pytest.raises(AssertionError):
        stores().walk(3, 400)
