"""Operations that requests do not need: space claimed and filled by hand, copies lent, received and dropped.

Blocks are touched, discarded and expire, and what is used often is written down.
"""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from kvcache_sim.cache.tree_store import NO_COPY
from store_operations import REQUEST, SEEN, TIER, StoreOperations


class ManualOperations(StoreOperations):
    """Rules over both stores."""

    def claim(self, tier: int, blocks: int):
        """Claim space on both stores; return each claim with the moves that must end first."""
        a, b = self.same("claim", tier, blocks, self.now)
        assert (a is None) == (b is None)
        assert a is None or len(a[1]) == len(b[1])
        self.orders()
        return a, b

    @precondition(lambda self: len(self.capacities) > 1)
    @rule(
        request=REQUEST,
        tier=st.integers(0, 3),
        span=st.tuples(st.integers(0, 3), st.integers(1, 3)),
        source=st.none() | st.integers(0, 3),
    )
    def mark_present(self, request: int, tier: int, span: tuple[int, int], source: int | None) -> None:
        """Claim blocks, then fill or release the claim; filled blocks are ready when the move ends."""
        start, end = span[0], min(span[0] + span[1], self.full[request])
        if max(tier, source or 0) >= len(self.capacities) or end <= start:
            return
        self.now += 1
        before = self.evictions()
        a, b = self.claim(tier, end - start)
        if a is None or b is None:
            return
        SEEN["a claim evicts"] += self.evictions() != before
        x, y = self.both(
            "fill_claim", (a[0], request, (start, end), source), (b[0], request, (start, end), source)
        )
        assert x == y
        if x:
            SEEN["marked by hand"] += 1
            self.moves[a[0]] = (b[0], set(a[1]))
        elif not a[1]:
            self.both("release_claim", (a[0],), (b[0],))
        else:  # what was evicted for it is still being written
            self.claims.append((a[0], b[0], set(a[1])))

    @rule(tier=TIER, blocks=st.integers(1, 20))
    def reserve_lease(self, tier: int, blocks: int) -> None:
        """Claim blocks that several victims must leave."""
        if tier >= len(self.capacities):
            return
        while self.claims and not self.claims[0][2]:
            self.release_space()  # or claims would soon hold all
        self.now += 1
        a, b = self.claim(tier, blocks)
        if a is not None and b is not None:
            self.claims.append((a[0], b[0], set(a[1])))

    @precondition(lambda self: self.claims)
    @rule()
    def release_space(self) -> None:
        mine, theirs, after = self.claims[0]
        if not after:
            self.both("release_claim", (mine,), (theirs,))
            self.claims.pop(0)
            SEEN["claim released"] += 1

    @rule(request=REQUEST, tier=st.integers(0, 3), span=st.tuples(st.integers(0, 3), st.integers(1, 4)))
    def mark_absent(self, request: int, tier: int, span: tuple[int, int]) -> None:
        part = (span[0], min(span[0] + span[1], self.full[request]))
        if tier < len(self.capacities) and part[0] < part[1]:
            x, y = self.same("remove", request, part, tier)
            assert x == y
            SEEN["marked absent"] += x > 0

    def found(self, request: int, tier: int) -> int:
        """Return how many blocks lead to the last found one on a tier."""
        copies = self.copies(self.native, request, self.full[request])
        return max((end + 1 for end, by in enumerate(copies) if by[tier] != NO_COPY), default=0)

    @rule(request=REQUEST)
    def touch(self, request: int) -> None:
        end = len(self.copies(self.native, request, self.full[request]))
        self.same("touch", request, end)

    @rule(request=REQUEST, start=st.integers(0, 3))
    def discard(self, request: int, start: int) -> None:
        end = len(self.copies(self.native, request, self.full[request]))
        self.same("discard", request, start, end)

    @rule(ns=st.integers(0, 40))
    def expire(self, ns: int) -> None:
        self.now += ns
        if "ttl" not in str(self.policies):
            return
        before = self.evictions()
        self.same("expire", self.now)
        SEEN["a block lapses"] += self.evictions() != before

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
            self.new_move(*self.same("lend", request, end, tier))

    @precondition(lambda self: len(self.capacities) > 1)
    @rule(request=REQUEST, start=st.integers(0, 4), length=st.integers(1, 4))
    def receive(self, request: int, start: int, length: int) -> None:
        start = min(start, len(self.copies(self.native, request, self.full[request])))
        part = (start, min(start + length, self.full[request]))
        if part[0] < part[1]:
            self.now += 1
            self.new_move(*self.same("receive", request, part, self.now))
            SEEN["received"] += 1

    @rule(request=REQUEST, start=st.integers(0, 4), tier=TIER)
    def drop_copy(self, request: int, start: int, tier: int) -> None:
        end = len(self.copies(self.native, request, self.full[request]))
        if 0 < tier < len(self.capacities) and start < end:
            self.same("drop_copy", request, start, end, tier)
