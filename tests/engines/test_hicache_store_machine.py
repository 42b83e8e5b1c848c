"""State machine of the store of SGLang's tree with a host tier, and in some runs a storage.

Requests are looked up, admitted with what they load and join, grow, compute and end; copies end in any order.
After every step the store passes its own check, capacities and evictions add up, a look-up finds what running
requests have and nothing that was never shown. Which pages go, and what is written when, the rows of SGLang's
own classes judge (``test_engine_streams.py``), through the runs of ``test_hicache_runs.py`` and
``test_hicache_storage.py``.
"""

from collections import Counter
from random import Random
from typing import Any, ClassVar

import pytest
from call_outcome import call
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.base.tiers import COMPUTE, STAGING
from kvcache_sim.cache.store import NO_MOVE
from shown import Shown
from support.examples import examples
from support.forests import key_arrays_of, random_forest
from tiered_pool import namer

#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
REQUESTS = [0, 1, 2, 3, 4, 6, 9, 12]
#: Pages that an answer adds at most.
ANSWER = 3
DISK = STAGING + 1


class HiCacheWalk:
    """A store, and a walk of a number of random steps through it."""

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
        keyed = key_arrays_of(random_forest())
        self.full = keyed[3].tolist()
        self.shown = Shown(namer(keyed))
        prompts = [pages * self.page + r % self.page for r, pages in enumerate(self.full)]
        wholes = [prompt + ANSWER * self.page for prompt in prompts]
        own = None
        if self.storage is not None:
            capacity, threshold, share = self.storage
            own = (capacity, -(-threshold // self.page), int(share * self.pages[1] * self.page))
        self.store = _core.RadixStore(
            _core.Keys(*keyed), (self.strategy, self.write), self.page, self.pages, (prompts, wholes), own
        )
        self.store.log_evictions()
        #: By tier, pages of the evictions that were logged, and by edge pages of copies.
        self.logged: Counter[int] = Counter()
        self.sent: Counter[tuple[int, int]] = Counter()
        self.now = 0
        #: request → lease, allocated pages.
        self.running: dict[int, tuple[int, int]] = {}
        #: Moves in flight, and loads among them.
        self.moves: list[int] = []
        self.loads: set[int] = set()

    def collect(self) -> None:
        """Take the orders."""
        for number, (move, source, target, pages, after) in enumerate(self.store.take_orders()):
            assert set(after) <= set(self.moves), "a copy waits for a copy in flight"
            assert pages > 0
            self.moves.append(move)
            self.sent[source, target] += pages
            self.store.set_times(move, self.now, self.now + number)
            SEEN["write"] += (source, target) == (COMPUTE, STAGING)

    def admit(self, request: int, more: int) -> None:
        """Admit as serving does: loads in flight are joined, pages on the host are loaded."""
        self.now += 1
        if request in self.running:
            found = self.store.peek(request, self.full[request])
            assert "the request has a lease" in call(self.store, "acquire", (request, found[1]))
            return
        found, ready = self.store.peek(request, self.full[request] - 1)
        parts = self.store.match_prefix(request, found)
        joined = sum(end - start for tier, start, end, by in parts if tier == COMPUTE and by != NO_MOVE)
        lease = self.store.acquire(request, ready)
        capacity = self.store.reserve(lease, self.full[request] + more - ready - joined, self.now)
        self.collect()
        if capacity is None:
            SEEN["refusal"] += 1
            self.store.abandon(lease)
            return
        assert set(capacity) <= set(self.moves)
        assert not capacity or self.write == "write_back", "pages are kept until they are written"
        SEEN["hit"] += ready > 0
        for tier, _, end, by in parts:
            if end <= ready:
                continue
            if tier == COMPUTE:
                SEEN["join"] += 1
                self.store.join(lease, end)
            else:
                SEEN["load"] += 1
                self.loads.add(self.store.load(lease, end, [by] * (by != NO_MOVE)))
        self.collect()
        self.running[request] = (lease, self.full[request] + more)
        self.shown.show(request, found)

    def grow_together(self, pages: list[int]) -> None:
        """As decoding does: all or nothing."""
        self.now += 1
        each = [
            (request, min(n, self.full[request] + ANSWER - self.running[request][1]))
            for request, n in zip(sorted(self.running), pages, strict=False)
        ]
        before = self.store.occupancy(COMPUTE).private_blocks
        capacity = self.store.reserve_many([(self.running[request][0], n) for request, n in each], self.now)
        self.collect()
        SEEN["refused together"] += capacity is None
        wanted = sum(n for _, n in each) if capacity is not None else 0
        assert self.store.occupancy(COMPUTE).private_blocks == before + wanted
        for request, n in each if capacity is not None else ():
            lease, held = self.running[request]
            self.running[request] = (lease, held + n)

    def compute(self, request: int, pages: int) -> None:
        """End a step that computed some pages of a request."""
        self.now += 1
        if request in self.running:
            lease, held = self.running[request]
            to = min(self.store.depth(lease) + pages, held)
            merged = self.store.merged_blocks
            if pages:
                self.store.commit(lease, to)
                assert self.store.depth(lease) == to
                self.shown.show(request, min(to, self.full[request]))
            self.store.step_computed([own for own, _ in self.running.values()], self.now)
            SEEN["merged"] += self.store.merged_blocks > merged
            self.collect()

    def end(self, request: int) -> None:
        """End a request, whose KV has come by then."""
        self.now += 1
        if request in self.running:
            for loading in [move for move in self.moves if move in self.loads]:
                self.finish(self.moves.index(loading))
            lease, _ = self.running.pop(request)
            self.shown.show(request, self.store.depth(lease))
            self.store.release(lease, self.now)
            self.shown.leave(request)
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
            self.store.finish_move(self.moves.pop(which % len(self.moves)))
            self.collect()

    def prefetch(self, request: int, pages: int) -> None:
        if self.storage is None or self.store.is_prefetching(request):
            return
        self.now += 1
        asked = self.store.start_prefetch(request, min(pages, self.full[request]), self.now)
        assert self.store.is_prefetching(request) == (asked > 0)
        SEEN["prefetch"] += asked > 0
        self.collect()

    def stop(self, request: int) -> None:
        """End a prefetch with what has come."""
        if self.storage is not None:
            for one in [one for one in (request, *REQUESTS) if self.store.is_prefetching(one)][:1]:
                SEEN["stopped"] += 1
                self.store.stop_prefetch(one)

    def finish_all(self) -> None:
        while self.moves:
            self.finish(0)

    def ask_too_much(self, request: int) -> None:
        if request in self.running:
            lease, held = self.running[request]
            digest = self.store.digest
            assert isinstance(call(self.store, "commit", (lease, held + 1)), str), "refused"
            assert isinstance(call(self.store, "abandon", (lease,)), str), "refused"
            assert self.store.digest == digest

    def holds(self) -> None:
        """Check what holds after every step."""
        store = self.store
        store.check()
        for _, tier, pages in store.take_evictions():
            self.logged[tier] += pages
        sizes = [*self.pages, *([self.storage[0]] if self.storage is not None else ())]
        for tier, size in enumerate(sizes):
            assert sum(store.occupancy(tier)[:4]) == size, tier
            assert store.eviction_counts(tier).evicted_blocks == self.logged[tier], "each has its event"
        assert isinstance(call(store, "occupancy", (len(sizes),)), str), "no such tier"
        lost = self.logged[COMPUTE] + self.logged[STAGING]
        for request in REQUESTS:
            limit = self.full[request] - 1
            found, ready = store.peek(request, limit)
            most = self.shown.most(request, limit)
            assert self.shown.least(request, limit) <= found <= most
            assert lost or found == most
            parts = store.match_prefix(request, limit)
            assert [part[1] for part in parts] == [0, *(part[2] for part in parts[:-1])][: len(parts)]
            assert (parts[-1][2] if parts else 0) == found
            first = parts[0] if parts else (STAGING, 0, 0, NO_MOVE)
            assert ready == (first[2] if (first[0], first[3]) == (COMPUTE, NO_MOVE) else 0)
        for tier, case in ((COMPUTE, "eviction"), (STAGING, "host eviction"), (DISK, "storage eviction")):
            SEEN[case] += self.logged[tier] > 0

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
            self.holds()
        for request in sorted(self.running):
            self.end(request)
        self.finish_all()
        self.holds()
        assert self.store.occupancy(COMPUTE).held_blocks == 0
        assert self.store.occupancy(STAGING).in_flight_blocks == 0
        # pages that came to the host and did not leave are there; under write_back copies of loaded pages
        # leave as well
        came = self.sent[COMPUTE, STAGING] + (self.store.prefetched_blocks if self.storage is not None else 0)
        there = self.store.occupancy(STAGING).cached_blocks
        assert there == came - self.logged[STAGING] or (
            self.write == "write_back" and there < came - self.logged[STAGING]
        )
        if self.storage is not None and not self.logged[DISK]:
            assert self.store.occupancy(DISK).cached_blocks <= self.sent[STAGING, DISK]


#: How often each step is taken.
STEPS = {
    "admit": 4,
    "compute": 6,
    "end": 3,
    "run_whole": 4,
    "grow_together": 4,
    "finish": 8,
    "finish_all": 1,
    "prefetch": 3,
    "stop": 1,
    "ask_too_much": 1,
}
WRITES = ("write_through", "write_through_selective", "write_back")
SHAPES: dict[str, dict[str, Any]] = {
    "pages of 4": {"sees": ("load", "merged")},
    "little memory": {"pages": (22, 8), "strategy": "slru"},
    "pages of 1": {"page": 1, "strategy": "lfu"},
    "pages of 16": {"page": 16, "strategy": "fifo", "pages": (26, 60), "sees": ("load",)},
    "newest first": {"strategy": "mru", "pages": (24, 16)},
    "storage": {"pages": (40, 10), "storage": (200, 4, 1.0)},
    "little storage": {"strategy": "lfu", "pages": (24, 20), "storage": (20, 4, 0.5), "sees": ("load",)},
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("shape", SHAPES)
def test_capacities_evictions_and_look_ups_add_up(shape: str, write: str) -> None:
    SEEN.clear()
    walk_of = type("Walk", (HiCacheWalk,), {**SHAPES[shape], "write": write})

    @examples(3)
    @given(st.integers(0, 1 << 32))
    def walks(seed: int) -> None:
        walk_of().walk(seed, 200)

    walks()
    missing = {case for case in ("hit", "write", "eviction", *walk_of.sees) if not SEEN[case]}
    assert not missing, f"no walk ever saw: {sorted(missing)}"


def test_what_is_in_the_storage_alone_comes_back() -> None:
    SEEN.clear()
    for write in WRITES:
        type("Walk", (HiCacheWalk,), {**SHAPES["storage"], "write": write})().walk(3, 300)
    assert SEEN["prefetch"]
    assert SEEN["stopped"]
