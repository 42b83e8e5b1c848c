"""Random walks through a store of an engine's cache, under the operations of serving.

Requests are looked up, admitted with what they load and join, grow, compute and end; copies end in any order.
After every step the store passes its own check, capacities and evictions add up, a look-up finds what running
requests have and nothing that was never shown.
"""

from collections import Counter
from random import Random
from typing import Any, ClassVar

from call_outcome import call
from kvcache_sim import _core
from kvcache_sim.base.tiers import COMPUTE, STAGING
from kvcache_sim.cache.store import NO_MOVE
from shown import Shown, namer
from support.forests import key_arrays_of, random_forest

#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
REQUESTS = [0, 1, 2, 3, 4, 6, 9, 12]
#: Pages that an answer adds at most.
ANSWER = 3
DISK = STAGING + 1
NO_LEASE = "store: no such lease; expected one that is held"


#: A run of found pages: its tier, the first one, past the last one, the move that writes it.
Part = tuple[int, int, int, int]
#: How often each step is taken.
STEPS = {"admit": 4, "compute": 6, "end": 3, "run_whole": 4, "grow_together": 4, "finish": 8, "finish_all": 1}
STEPS |= {"ask_too_much": 1, "come_back_together": 2}


class StoreWalk:
    """A store, and a walk of a number of random steps through it. A page is a block."""

    #: Tokens a page, and pages of each tier.
    page: ClassVar[int] = 4
    pages: ClassVar[tuple[int, ...]] = (30, 30)
    steps: ClassVar[dict[str, int]] = STEPS
    #: What some walk must have seen.
    sees: ClassVar[tuple[str, ...]] = ()
    #: Pages behind a look-up's limit that a tier may have: the last one, where it is whole.
    beyond: ClassVar[int] = 0
    #: Whether an answer's pages are found before its request ends.
    answers_at_once: ClassVar[bool] = False
    #: Whether each page that came to the host is there until its eviction is counted.
    counts_all: ClassVar[bool] = False

    def __init__(self) -> None:
        keyed = key_arrays_of(random_forest())
        self.full = keyed[3].tolist()
        self.shown = Shown(namer(keyed))
        prompts = [pages * self.page + r % self.page for r, pages in enumerate(self.full)]
        self.store = self.made(_core.Keys(*keyed), prompts)
        self.store.log_evictions()
        self.has_lower = len(self.pages) > 1
        #: By tier, pages of the evictions that were logged, and by edge pages of copies.
        self.logged: Counter[int] = Counter()
        self.sent: Counter[tuple[int, int]] = Counter()
        self.now = 0
        #: request → lease, allocated pages.
        self.running: dict[int, tuple[int, int]] = {}
        #: Moves in flight, each with those that must end first; by request the moves that bring its pages.
        self.moves: dict[int, set[int]] = {}
        self.waits: dict[int, set[int]] = {request: set() for request in REQUESTS}

    def made(self, keys: _core.Keys, prompts: list[int]) -> Any:
        """Return an empty store for prompts of so many tokens."""
        raise NotImplementedError

    def wholes(self, prompts: list[int]) -> tuple[list[int], list[int]]:
        """Return the tokens of each prompt, and with its answer."""
        return prompts, [prompt + ANSWER * self.page for prompt in prompts]

    def collect(self) -> None:
        """Take the orders."""
        for number, (move, source, target, pages, after) in enumerate(
            self.store.take_orders() if self.has_lower else ()
        ):
            assert set(after) <= set(self.moves), "a copy waits for a copy in flight"
            assert pages > 0
            self.moves[move] = set(after)
            self.sent[source, target] += pages
            self.store.set_times(move, self.now, self.now + number)
            SEEN["write"] += (source, target) == (COMPUTE, STAGING)

    def parts(self, request: int, limit: int) -> list[Part]:
        """Return the found run."""
        if self.has_lower:
            return self.store.match_prefix(request, limit)
        found, _ = self.store.peek(request, limit)
        return [(COMPUTE, 0, found, NO_MOVE)] if found else []

    def admit(self, request: int, number: int) -> None:
        """Admit as serving does: loads in flight are joined, pages on lower tiers are loaded."""
        self.now += 1
        pages = self.full[request] + number % 2
        store, found = self.store, self.store.peek(request, self.full[request] - 1)
        if request in self.running:
            assert "the request has a lease" in call(store, "acquire", (request, found[1]))
            return
        parts, (_, ready) = self.parts(request, found[0]), found
        holds = [(tier, store.protect(request, end, tier)) for tier, _, end, _ in parts if tier != COMPUTE]
        joined = sum(end - start for tier, start, end, by in parts if tier == COMPUTE and by != NO_MOVE)
        lease = store.acquire(request, ready)
        space = store.reserve(lease, pages - ready - joined, self.now)
        self.collect()
        if space is None:
            SEEN["refusal"] += 1
            store.abandon(lease)
        else:
            SEEN["hit"] += ready > 0
            SEEN["space waits for a copy"] += bool(space)
            self.bring(request, lease, [part for part in parts if part[2] > ready], space)
            self.running[request] = (lease, pages)
            self.shown.show(request, found[0])
        for tier, hold in holds:
            store.unprotect(tier, hold)

    def bring(self, request: int, lease: int, parts: list[Part], space: list[int]) -> None:
        """Join or load what was found but is not ready; wait for space that copies still read."""
        assert set(space) <= set(self.moves)
        for tier, _, end, by in parts:
            if tier == COMPUTE:
                SEEN["join"] += 1
                self.waits[request].add(by)
                self.store.join(lease, end)
                continue
            SEEN[f"load from {tier}"] += 1
            self.waits[request].add(self.store.load(lease, end, [*space, *([by] * (by != NO_MOVE))]))
            self.collect()

    def grow_together(self, _: int, number: int) -> None:
        """As decoding does: all or nothing."""
        self.now += 1
        each = [
            (request, min(number >> k & 1, self.full[request] + ANSWER - self.running[request][1]))
            for k, request in enumerate(sorted(self.running))
        ]
        before = self.store.occupancy(COMPUTE).private_blocks
        space = self.store.reserve_many([(self.running[request][0], n) for request, n in each], self.now)
        self.collect()
        SEEN["refused together"] += space is None
        wanted = sum(n for _, n in each) if space is not None else 0
        assert self.store.occupancy(COMPUTE).private_blocks == before + wanted
        for request, n in each if space is not None else ():
            lease, held = self.running[request]
            self.running[request] = (lease, held + n)

    def compute(self, request: int, number: int) -> None:
        """End a step that computed some pages of a request, whose found pages have come by then."""
        self.now += 1
        pages = (0, 1, 2, 5, 40)[number % 5]
        if request in self.running:
            self.land(request)
            lease, held = self.running[request]
            to = min(self.store.depth(lease) + pages, held)
            merged = self.store.merged_blocks
            if pages:
                self.store.commit(lease, to)
                assert self.store.depth(lease) == to
                self.shown.show(request, to if self.answers_at_once else min(to, self.full[request]))
            if self.has_lower:
                ready = [own for one, (own, _) in self.running.items() if not self.waits[one]]
                self.store.step_computed(ready, self.now)
            SEEN["merged"] += self.store.merged_blocks > merged
            self.collect()

    def end(self, request: int, _: int = 0) -> None:
        """End a request, whose KV has come by then."""
        self.now += 1
        if request in self.running:
            self.land(request)
            lease, _ = self.running.pop(request)
            self.shown.show(request, self.store.depth(lease))
            self.store.release(lease, self.now)
            self.shown.leave(request)
            self.collect()
            for name, rest in (("depth", ()), ("commit", (2,)), ("release", (1,))):
                assert call(self.store, name, (lease, *rest)) == NO_LEASE

    def land(self, request: int) -> None:
        """End copies until all that a request waits for have ended."""
        while self.waits[request]:
            self.finish(request, 0)

    def run_whole(self, request: int, _: int) -> None:
        if request not in self.running:
            self.admit(request, 1)
            self.compute(request, 4)
            self.end(request)

    def come_back_together(self, request: int, number: int) -> None:
        """Admit a prompt whose pages others took, and its next turn, which finds what that loads."""
        first, others = (0, 3, 6)[number % 3], ((9,), (6, 1), (12,), (4, 1, 2))[number % 4]
        for one in list(self.running):
            self.end(one)
        for one in (first, *others):
            self.run_whole(one, 0)
        self.admit(first, 0)
        self.admit(first + 3, 0)

    def finish(self, _: int, number: int) -> None:
        """End one of the copies that wait for no other."""
        if self.moves:
            able = [move for move, after in self.moves.items() if not after]
            move = able[number % len(able)]
            del self.moves[move]
            for others in (*self.moves.values(), *self.waits.values()):
                others.discard(move)
            self.store.finish_move(move)
            self.collect()

    def finish_all(self, request: int = 0, _: int = 0) -> None:
        while self.moves:
            self.finish(request, 0)

    def ask_too_much(self, request: int, _: int) -> None:
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
        for tier, size in enumerate(self.pages):
            assert sum(store.occupancy(tier)[:4]) == size, tier
            assert store.eviction_counts(tier).evicted_blocks == self.logged[tier], "each has its event"
        assert isinstance(call(store, "occupancy", (len(self.pages),)), str), "no such tier"
        lost = self.logged[COMPUTE] + self.logged[STAGING]
        for request in REQUESTS:
            limit = self.full[request] - 1
            found, ready = store.peek(request, limit)
            assert found <= self.shown.most(request, limit + self.beyond)
            assert found >= (self.shown.least if lost else self.shown.most)(request, limit)
            parts = self.parts(request, found)
            assert [part[1] for part in parts] == [0, *(part[2] for part in parts[:-1])][: len(parts)]
            assert (parts[-1][2] if parts else 0) == found
            first = parts[0] if parts else (STAGING, 0, 0, NO_MOVE)
            assert ready == (first[2] if (first[0], first[3]) == (COMPUTE, NO_MOVE) else 0)
            assert all(by == NO_MOVE or by in self.moves for *_, by in parts)
        for tier, case in ((COMPUTE, "eviction"), (STAGING, "host eviction"), (DISK, "storage eviction")):
            SEEN[case] += self.logged[tier] > 0

    def walk(self, seed: int, steps: int) -> None:
        """Take random steps, and end what runs."""
        draw = Random(seed)
        for _ in range(steps):
            request = draw.choice(REQUESTS)
            step = draw.choices(list(self.steps), list(self.steps.values()))[0]
            getattr(self, step)(request, draw.randrange(256))
            self.holds()
        for request in sorted(self.running):
            self.end(request)
        self.finish_all()
        self.holds()
        assert self.store.occupancy(COMPUTE).held_blocks == 0
        if self.has_lower:
            assert self.store.occupancy(STAGING).in_flight_blocks == 0
            there, left = self.store.occupancy(STAGING).cached_blocks, self.came() - self.logged[STAGING]
            assert there == left if self.counts_all else there <= left

    def came(self) -> int:
        """Return the pages that came to the host."""
        return self.sent[COMPUTE, STAGING] + self.sent[DISK, STAGING]
