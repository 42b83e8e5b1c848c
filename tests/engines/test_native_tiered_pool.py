"""State machines of the stores of vLLM's pool with an engine's tiers below, compared with small models."""

from collections import Counter

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from kvcache_sim import _core
from kvcache_sim.base.errors import StoreError
from kvcache_sim.base.tiers import COMPUTE
from kvcache_sim.cache.store import NO_MOVE
from lmcache_pool import LmcacheModel
from support.examples import NEW_EXAMPLES, examples
from support.forests import key_arrays_of, random_forest
from tiered_pool import READY, OffloadModel, namer

#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
NUMBERS = [0, 1, 2, 3, 4, 6, 9, 12]
REQUESTS = st.sampled_from(NUMBERS)
#: Tokens of a block, and of what a prompt has beyond its last full one.
BLOCK, OVER = 4, 2


class TieredStores(RuleBasedStateMachine):
    """A store and its model under the operations of a replica in any order: look up, load, join, compute,
    offer, end."""

    engine = ("vllm-offload", "lru")
    capacity = (40, 30, 0)
    chunk = 1

    @initialize()
    def build(self) -> None:
        keyed = key_arrays_of(random_forest())
        self.full = keyed[3].tolist()
        keys = _core.Keys(*keyed)
        prompts = [blocks * BLOCK + (request % 2) * OVER for request, blocks in enumerate(self.full)]
        (name, policy), (gpu, cpu, disk) = self.engine, self.capacity
        of_block = namer(keyed)
        if name == "lmcache":
            self.store = _core.TieredPoolStore.with_lmcache(
                keys, gpu, (cpu, disk), self.chunk, f"lmcache:{policy}", (prompts, BLOCK)
            )
            self.model: OffloadModel = LmcacheModel(
                of_block, self.capacity, policy, prompts, BLOCK, self.chunk
            )
        else:
            self.store = _core.TieredPoolStore.with_offload(keys, gpu, cpu, 1, policy, (prompts, BLOCK))
            self.model = OffloadModel(of_block, self.capacity, policy, prompts, BLOCK)
        self.now = 0
        #: request → lease, allocated blocks.
        self.running: dict[int, tuple[int, int]] = {}
        #: The store's numbers of moves, indexed by the model's; by request the moves that it waits for.
        self.numbers = [NO_MOVE]
        self.in_flight: list[int] = []
        self.waits: dict[int, set[int]] = {request: set() for request in NUMBERS}
        #: Requests whose last offer was refused.
        self.refused: set[int] = set()

    def numbered(self, moves) -> set[int]:
        """Return the store's numbers of moves of the model."""
        return {self.numbers[move] for move in moves}

    def take_orders(self) -> None:
        orders, self.model.orders = self.model.orders, []
        reported = self.store.take_orders()
        self.numbers += [order[0] for order in reported]
        self.in_flight += [order[0] for order in orders]
        named = [(*order[1:4], self.numbered(order[4])) for order in orders]
        assert [(*order[1:4], set(order[4])) for order in reported] == named

    @rule(request=REQUESTS)
    def admit(self, request: int) -> None:
        """As a replica does: look up, reserve, join or load part by part."""
        self.now += 1
        store, model = self.store, self.model
        limit = self.full[request] - (request % 2 == 0)
        found, ready = model.peek(request, limit)
        assert store.peek(request, limit) == (found, ready)
        if request in self.running:
            return
        parts = model.parts(request, found)
        reported = [(*part[:3], self.numbers[part[3]]) for part in parts]
        assert store.match_prefix(request, found) == reported
        holds = [
            (part[0], store.protect(request, part[2], part[0]), model.protect(request, part[2]))
            for part in parts
            if part[0] > COMPUTE
        ]
        lease = store.acquire(request, ready)
        joined = sum(part[2] - part[1] for part in parts if part[0] == COMPUTE and part[3] != READY)
        total = self.full[request] + 1
        own = total - ready - joined
        capacity = store.reserve(lease, own, self.now)
        waits = model.reserve(request, ready, own)
        if waits is None:
            assert capacity is None
            SEEN["refusal"] += 1
            store.abandon(lease)
        else:
            assert set(capacity) == self.numbered(waits)
            SEEN["allocation waits for a write"] += bool(waits)
            for tier, _, end, by in (part for part in parts if part[2] > ready):
                if tier == COMPUTE:
                    SEEN["joined"] += 1
                    self.waits[request].add(by)
                    store.join(lease, end)
                    model.join(request, end)
                    continue
                after = waits | ({by} - {READY})
                SEEN[f"loaded from {tier}"] += 1
                self.waits[request].add(model.load(request, end, after))
                store.load(lease, end, sorted(self.numbered(after)))
                self.take_orders()
            self.running[request] = (lease, total)
        for tier, hold, held in holds:
            store.unprotect(tier, hold)
            model.unprotect(held)

    @rule(request=REQUESTS, blocks=st.sampled_from([1, 2, 5, 40]))
    def compute(self, request: int, blocks: int) -> None:
        """A step computes some of a prompt and offers it; loads come first."""
        if request not in self.running:
            return
        self.land(request)
        self.now += 1
        lease, held = self.running[request]
        to = min(self.model.depth[request] + blocks, held - 1)
        self.store.commit(lease, to)
        self.model.commit(request, to)
        self.offer(request)

    def land(self, request: int) -> None:
        """End all copies that a request waits for."""
        if self.waits[request]:
            for move in list(self.in_flight):
                self.end(move)

    def offer(self, *requests: int) -> None:
        self.store.step_computed([self.running[request][0] for request in requests], self.now)
        before = {request: self.model.to_offer.get(request) for request in requests}
        self.model.step_computed(requests)
        for request, start in before.items():
            is_left = start is not None and start == self.model.to_offer.get(request)
            SEEN["taken later"] += request in self.refused and not is_left
            self.refused -= {request}
            self.refused |= {request} if is_left and start < self.model.depth[request] else set()
        self.take_orders()

    @rule()
    def step_of_all(self) -> None:
        self.now += 1
        self.offer(*(request for request in self.running if not self.waits[request]))

    @rule(request=REQUESTS, blocks=st.integers(0, 3))
    def grow(self, request: int, blocks: int) -> None:
        if request in self.running:
            self.now += 1
            lease, held = self.running[request]
            capacity, waits = self.store.reserve(lease, blocks, self.now), self.model.grow(request, blocks)
            assert (capacity if capacity is None else set(capacity)) == (
                waits if waits is None else self.numbered(waits)
            )
            self.running[request] = (lease, held + (blocks if waits is not None else 0))

    @rule(requests=st.lists(REQUESTS, min_size=1, max_size=4), lands=st.booleans())
    def run_whole(self, requests: list[int], lands: bool) -> None:
        for request in requests:
            if request not in self.running:
                self.admit(request)
                self.compute(request, 40)
                self.leave(request)
        for move in list(self.in_flight) if lands else ():
            self.end(move)

    @rule(requests=st.permutations(NUMBERS), number=st.integers(2, 4))
    def admit_together(self, requests: list[int], number: int) -> None:
        """Those that come later find what the first ones load."""
        for request in requests[:number]:
            self.leave(request)
        for request in requests[:number]:
            self.admit(request)

    @rule(
        first=st.sampled_from([0, 3, 6]),
        others=st.sampled_from([(9,), (6, 1), (12,), (4, 1, 2)]),
        lands=st.booleans(),
    )
    def come_back_together(self, first: int, others: tuple[int, ...], lands: bool) -> None:
        """A prompt whose blocks others took, and its next turn right behind it, which finds what it loads."""
        for request in list(self.running):
            self.leave(request)
        self.run_whole([first, *others], lands)
        self.admit_together([first, first + 3], 2)

    @rule(first=st.sampled_from([0, 2, 4]))
    def find_a_busy_tier(self, first: int) -> None:
        """A prompt is offered while another prompt's blocks are in transit, and again once they have
        arrived."""
        for request in list(self.running):
            self.leave(request)
        for request in (first, 1):
            self.admit(request)
            self.compute(request, 40)
        for move in list(self.in_flight):
            self.end(move)
        self.step_of_all()

    @rule(which=st.integers(0, 99))
    def end_a_copy(self, which: int) -> None:
        """Copies of a tier end in any order, but what waits for another after it."""
        if self.in_flight:
            self.end(self.in_flight[0 if which % 3 else which % len(self.in_flight)])

    def end(self, move: int) -> None:
        self.in_flight.remove(move)
        for waited in self.waits.values():
            waited.discard(move)
        self.model.finish(move)
        self.store.finish_move(self.numbers[move])

    @rule(request=REQUESTS)
    def leave(self, request: int) -> None:
        if request in self.running:
            self.land(request)
            self.now += 1
            lease, _ = self.running.pop(request)
            self.store.release(lease, self.now)
            self.model.release(request)
            self.refused -= {request}

    @rule(name=st.sampled_from(["release", "commit", "load", "join", "depth"]))
    def call_with_no_lease(self, name: str) -> None:
        rest = {"release": (1,), "commit": (2,), "load": (2, []), "join": (2,)}
        with pytest.raises(StoreError, match="one that is held"):
            getattr(self.store, name)(NO_MOVE, *rest.get(name, ()))

    @invariant()
    def the_store_is_its_model(self) -> None:
        if not hasattr(self, "store"):
            return
        store, model = self.store, self.model
        for tier in range(model.tiers):
            assert tuple(store.occupancy(tier)) == model.occupancy(tier), tier
            assert tuple(store.eviction_counts(tier)) == (model.evicted_from(tier), 0, 0), tier
            if tier:
                assert store.duplicates(tier) == model.duplicates(tier), tier
            SEEN[f"evicted from {tier}"] += model.evicted_from(tier) > 0
        for request in NUMBERS:
            assert store.peek(request, self.full[request]) == model.peek(request, self.full[request])
        for request, (lease, _) in self.running.items():
            assert store.depth(lease) == model.depth[request]
        store.check()


SESSION = examples(50, stateful_step_count=50, suppress_health_check=list(HealthCheck))
SHAPES = {
    "vllm-offload, lru": {"capacity": (26, 31, 0)},
    "vllm-offload, arc": {"engine": ("vllm-offload", "arc"), "capacity": (26, 30, 0)},
    "vllm-offload, little memory": {"capacity": (32, 8, 0)},
    "lmcache, lru": {"engine": ("lmcache", "lru"), "capacity": (26, 31, 0)},
    "lmcache, lfu, disk": {"engine": ("lmcache", "lfu"), "capacity": (26, 16, 28)},
    "lmcache, mru, disk": {"engine": ("lmcache", "mru"), "capacity": (26, 16, 28)},
    "lmcache, fifo, disk": {"engine": ("lmcache", "fifo"), "capacity": (26, 16, 28)},
    "lmcache, lru, disk, chunks": {"engine": ("lmcache", "lru"), "capacity": (26, 17, 29), "chunk": 3},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_store_is_its_model(shape: str) -> None:
    SEEN.clear()
    run_state_machine_as_test(type("Machine", (TieredStores,), SHAPES[shape]), settings=SESSION)
    wanted = {"refusal", "loaded from 1", "allocation waits for a write", "evicted from 0", "evicted from 1"}
    wanted.add("taken later" if shape == "vllm-offload, little memory" else "joined")
    if "disk" in shape:
        wanted |= {"loaded from 2", "evicted from 2"}
    missing = {case for case in wanted if not SEEN[case]}
    assert not missing or (NEW_EXAMPLES and NEW_EXAMPLES < 50), f"the session never saw: {sorted(missing)}"
