"""The operations of a machine's life on the core's store and a plain one, side by side, in any order.

A state machine looks up, admits, loads, stages, writes through, commits, finishes, and lets transfers end in any
order; ``manual_operations.py`` has what requests do not need.
"""

from collections import Counter
from typing import ClassVar

import pytest
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from kvcache_sim import _core
from kvcache_sim.base.errors import StoreError
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.policies.tier_orders import choose_eviction
from kvcache_sim.spec.keys import Keys
from marked_store import MarkedStore
from support.forests import key_arrays_of, random_forest

GPU = 0
TIER = st.integers(0, 3)
#: Most blocks of a prompt, so that several fit on the GPU.
PROMPT = st.integers(1, 20)
#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
#: A request of the machine at hand.
REQUEST = st.runner().flatmap(lambda machine: st.sampled_from(machine.requests))


def native_orders(policies: tuple[str, ...] | None, sizes: list[int | None]):
    """Return what the core's store takes for these policies."""
    orders = []
    for text, size in zip(policies or (), sizes, strict=bool(policies)):
        choice = choose_eviction(text, 1)
        blocks = 1 << 40 if size is None else size
        orders.append(None if choice is None else (choice.variant.name, choice.variant.native, blocks))
    return orders or None


class StoreOperations(RuleBasedStateMachine):
    """The life of a machine, as rules over both stores."""

    capacities: tuple[int | None, ...] = (12, 9, 20)
    write_back = True
    touched_at = "release"
    eviction_batch_blocks = 1
    #: Fates of victims that the tier below cannot store now.
    overflows: ClassVar[tuple[str, ...]] = ("wait", "wait-for-writes", "drop")
    #: Ids of each request, two blocks an id, and the request whose prompt shows its answer.
    forest = staticmethod(random_forest)
    requests: ClassVar[list[int]] = [0, 1, 2, 3, 4, 6, 9, 12]
    policies: ClassVar[tuple[str, ...] | None] = None
    plain_store: ClassVar[type[MarkedStore]] = MarkedStore

    @initialize(overflow=st.runner().flatmap(lambda machine: st.sampled_from(machine.overflows)))
    def build(self, overflow: str = "wait") -> None:
        arrays = key_arrays_of(self.forest())
        sizes = list(self.capacities)
        back = [self.write_back] * (len(sizes) - 1) + [False]
        rules = self.touched_at, self.eviction_batch_blocks
        orders = native_orders(self.policies, sizes)
        self.native = _core.Store(_core.Keys(*arrays), sizes, back, orders, *rules, overflow=overflow)
        self.plain = self.plain_store(Keys(arrays), sizes, back, self.policies, *rules)
        self.plain.overflow_waits = overflow != "drop"
        self.plain.waits_for_loads = overflow == "wait"
        self.full: list[int] = arrays[3].tolist()
        self.now = 0
        #: request → (native lease, plain lease, reserved blocks)
        self.running: dict[int, list[int]] = {}
        #: native move → (plain move, moves that must end first); the stores give an ended move's id out again
        self.moves: dict[int, tuple[int, set[int]]] = {}
        self.loading: dict[int, set[int]] = {}
        #: Moves whose times are set.
        self.timed: set[int] = set()
        #: Claims that wait for space: native, plain, moves that must end first.
        self.claims: list[tuple[int, int, set[int]]] = []

    def both(self, name: str, mine: tuple, theirs: tuple):
        """Call both stores; a call that the core's refuses is no test, but the plain one refuses it too."""
        try:
            a = getattr(self.native, name)(*mine)
        except StoreError:
            with pytest.raises(StoreError):
                getattr(self.plain, name)(*theirs)
            reject()
        return a, getattr(self.plain, name)(*theirs)

    def same(self, name: str, *given: object):
        """Call both stores with the same arguments."""
        return self.both(name, given, given)

    def evictions(self) -> list[int]:
        """Return the evicted blocks of each tier so far."""
        return [self.native.eviction_counts(tier)[0] for tier in range(len(self.capacities))]

    def orders(self) -> None:
        mine, theirs = self.native.take_orders(), self.plain.take_orders()
        assert [o[1:4] for o in mine] == [o[1:4] for o in theirs]
        for a, b in zip(mine, theirs, strict=True):
            self.moves[a[0]] = (b[0], set(a[4]))
            SEEN[f"move {a[1]}->{a[2]}"] += 1
            SEEN["a write waits for another"] += bool(a[4])
            SEEN["a write waits for space"] += a[0] in a[4]
            SEEN["a waiting write is dropped"] += not a[3]
        for a in mine:  # the last write for a backlog names earlier ones, which may have ended
            self.moves[a[0]][1].intersection_update(self.moves)

    def occupancy(self, name: str, mine: tuple, theirs: tuple) -> set[int] | None:
        before = self.evictions()
        a, b = self.both(name, mine, theirs)
        assert (a is None) == (b is None), (a, b)
        SEEN["refusal"] += a is None
        SEEN["eviction next to a hold"] += self.evictions() != before and bool(self.running)
        self.orders()
        if a is None:
            return None
        assert len(a) == len(b)
        return set(a)

    @rule(request=REQUEST, output=st.integers(0, 3), take=st.integers(1, 3), prompt=PROMPT)
    def admit(self, request: int, output: int, take: int, prompt: int = 40) -> None:
        if request in self.running:
            return
        self.now += 1
        limit = min(self.full[request], prompt)
        assert self.native.peek(request, limit) == self.plain.peek(request, limit)
        mine, theirs = self.native.match_prefix(request, limit), self.plain.match_prefix(request, limit)
        assert [(p[0], p[1], p[2], p[3] == NO_MOVE) for p in mine] == [
            (p[0], p[1], p[2], p[3] == NO_MOVE) for p in theirs
        ]
        ready = mine[0][2] if mine and mine[0][0] == GPU and mine[0][3] == NO_MOVE else 0
        on_the_gpu_first = all(p[0] == GPU for p in mine[:1]) or ready == 0
        lower = [p for p in mine if p[0] != GPU][:take] if on_the_gpu_first else []
        joined = [p for p in mine if p[0] == GPU and p[3] != NO_MOVE]
        holds = [(p[0], self.same("protect", request, p[2], p[0])) for p in lower]
        a, b = self.same("acquire", request, ready)
        need = limit + output - ready - sum(p[2] - p[1] for p in joined)
        capacity = self.occupancy("reserve", (a, need, self.now), (b, need, self.now))
        if capacity is None:
            self.both("abandon", (a,), (b,))
        else:
            self.running[request] = [a, b, need]
            self.loading[request] = set(capacity)
            for p in joined:
                self.both("join", (a, p[2]), (b, p[2]))
                self.loading[request].add(p[3])
            self.take_lower(request, lower, capacity)
        for tier, (x, y) in holds:
            self.both("unprotect", (tier, x), (tier, y))
        self.orders()

    def take_lower(self, request: int, lower: list, capacity: set[int]) -> None:
        a, b, _ = self.running[request]
        for tier, start, end, by in lower:
            after = sorted(capacity)
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
        self.orders()

    @precondition(lambda self: self.moves)
    @rule(pick=st.integers(0, 50), layers_ns=st.integers(0, 9))
    def time_a_move(self, pick: int, layers_ns: int) -> None:
        """A transmission's times are known before it ends."""
        sent = [move for move, (_, after) in self.moves.items() if move not in after]
        move = sent[pick % len(sent)]
        first, ready = self.now + 1_000_000 + pick, self.now + 1_000_000 + pick + layers_ns
        self.both("set_times", (move, first, ready), (self.moves[move][0], first, ready))
        self.timed.add(move)

    def idle(self) -> list[int]:
        return [r for r in self.running if not self.loading[r]]

    @precondition(lambda self: self.idle())
    @rule(pick=st.integers(0, 50), blocks=st.integers(1, 6), through=st.booleans())
    def commit(self, pick: int, blocks: int, through: bool) -> None:
        self.commit_of(self.idle()[pick % len(self.idle())], blocks, through)

    def commit_of(self, request: int, blocks: int, through: bool) -> None:
        a, b, reserved = self.running[request]
        depth = self.native.depth(a)
        assert depth == self.plain.depth(b)
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
        capacity = self.occupancy("reserve_many", ([(a, 1)], self.now), ([(b, 1)], self.now))
        if capacity is not None:
            self.running[request][2] += 1
            self.loading[request] |= capacity

    @rule(
        request=REQUEST,
        pieces=st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=5),
        written=st.booleans(),
    )
    def run_a_request(self, request: int, pieces: list[tuple[int, bool]], written: bool) -> None:
        """Run a request from admission to release, with some of its blocks written through, at times
        before its end."""
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

    def copies(self, store, request: int, limit: int) -> list[list[int]]:
        """Return of each found block whether each tier's copy is ready, in flight or none."""
        blocks = []
        for end, by in store.copies(request, limit):
            blocks += [[move if move in (NO_COPY, NO_MOVE) else 0 for move in by]] * (end - len(blocks))
        return blocks

    def new_move(self, a: int | None, b: int | None) -> None:
        assert (a is None) == (b is None), (a, b)
        self.orders()
        if a is not None and a not in self.moves:  # it waits for nothing
            self.moves[a] = (b, set())

    def last_keys(self, paths: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(end, next(self.plain.keys.path(request, end - 1, end))) for request, end in paths]

    @precondition(lambda self: self.idle())
    @rule(pick=st.integers(0, 50))
    def finish(self, pick: int) -> None:
        request = self.idle()[pick % len(self.idle())]
        a, b, _ = self.running.pop(request)
        self.now += pick % 3
        self.both("release", (a, self.now), (b, self.now))
