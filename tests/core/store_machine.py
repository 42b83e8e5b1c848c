"""The state machine of the core's store and a plain one: after every step both give the same answers."""

from hypothesis.stateful import invariant
from kvcache_sim.cache.store import NO_MOVE
from manual_operations import ManualOperations
from store_operations import SEEN


class StoreMachine(ManualOperations):
    """Compares capacity, losses, residency, recency, look-ups, users and digests; ends with nothing in
    use."""

    @invariant()
    def both_stores_agree(self) -> None:
        if not hasattr(self, "native"):
            return
        self.native.check()
        self.plain.check()
        for tier, capacity in enumerate(self.capacities):
            assert self.native.occupancy(tier) == self.plain.occupancy(tier)
            assert self.native.eviction_counts(tier) == self.plain.eviction_counts(tier)
            if capacity is not None:
                assert sum(self.native.occupancy(tier)[:4]) == capacity
        assert self.native.digest == self.plain.digest
        for request, limit in list(enumerate(self.full))[self.now % 8 :: 8]:
            assert self.copies(self.native, request, limit) == self.copies(self.plain, request, limit)
            assert self.residency(self.native, request, limit) == self.residency(self.plain, request, limit)
            assert self.recency(self.native, request, limit) == self.recency(self.plain, request, limit)

    @invariant()
    def all_answers_agree(self) -> None:
        if not hasattr(self, "native"):
            return
        assert self.native.merged_blocks == self.plain.merged_blocks
        for tier in range(len(self.capacities)):
            assert self.native.duplicates(tier) == self.plain.duplicates(tier)
        for a, (b, _) in self.moves.items():
            # each names a request on whose path the blocks are, maybe not the same one
            assert self.last_keys(self.native.moved_paths(a)) == self.last_keys(self.plain.moved_paths(b))
        number = {move: n for n, (move, _) in enumerate(self.moves.items())}
        plain = {b: number[a] for a, (b, _) in self.moves.items()}
        for request, limit in list(enumerate(self.full))[self.now % 8 :: 8]:
            for name, about in (("match_prefix", (limit,)), ("match_below", (self.now % 3, limit))):
                parts = getattr(self.native, name)(request, *about)
                assert [(*p[:3], number.get(p[3])) for p in parts] == [
                    (*p[:3], plain.get(p[3])) for p in getattr(self.plain, name)(request, *about)
                ]
            mine, theirs = (users(store, request, limit) for store in (self.native, self.plain))
            assert list(map(bool, mine)) == list(map(bool, theirs))
            assert mine == theirs or self.moves, "a move may use a path once for each of its blocks"

    def residency(self, store, request: int, limit: int) -> list[list[tuple]]:
        """Return of each found block its copies: tier, whether ready, both times and its last access."""
        blocks: list[list[tuple]] = []
        for end, copies in store.residency(request, limit):
            reported = [(tier, move == NO_MOVE, *times) for tier, move, *times in copies]
            blocks += [reported] * (end - len(blocks))
            SEEN["a ready copy by its times"] += any(ready and at > 0 for _, ready, _, at, _ in reported)
            SEEN["a timed copy in flight"] += any(
                not ready and at < 1 << 62 for _, ready, _, at, _ in reported
            )
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
            self.release_space()
        for request in list(self.running):
            a, b, _ = self.running.pop(request)
            self.both("release", (a, 0), (b, 0))
        self.both_stores_agree()
        for tier in range(len(self.capacities)):
            occupancy = self.native.occupancy(tier)
            assert (occupancy.held_blocks, occupancy.in_flight_blocks) == (0, 0)


def users(store, request: int, limit: int) -> list[int]:
    counts: list[int] = []
    for end, holders, _ in store.uses(request, limit):
        counts += [holders] * (end - len(counts))
    return counts
