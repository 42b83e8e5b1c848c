"""State machines of the engines' GPU cache stores; vLLM's is compared with a small model.

Requests are looked up, admitted, grow alone and together, share what they computed and end in any order. Of
SGLang's tree a look-up finds what running requests have and nothing that was never shown, and all of that
while nothing was evicted; which leaves go, the rows of SGLang's own classes judge
(``test_engine_streams.py``). A session counts as a test only if the hard cases occurred in some run of it.
"""

from collections import Counter
from typing import Any, ClassVar

import pytest
from call_outcome import call
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from kvcache_sim import _core
from shown import Shown
from support.examples import examples
from support.forests import key_arrays_of, random_forest
from tiered_pool import GPU, PoolModel, namer

#: What happened over all runs of a session.
SEEN: Counter[str] = Counter()
NUMBERS = [0, 1, 2, 3, 4, 6, 9, 12]
REQUESTS = st.sampled_from(NUMBERS)
#: Blocks fewer than are found; all of them now and then, as two requests have that compute the same at once.
LESS = st.sampled_from([0, 0, 0, 1, 99])
NO_LEASE = "store: no such lease; expected one that is held"


class EngineStore(RuleBasedStateMachine):
    """Drives a store by random requests; its answers are compared in ``expected_*`` and
    ``the_store_agrees``."""

    capacity = 40
    #: Blocks at most that a request reserves at once beyond its prompt.
    most_more = 2

    @initialize()
    def build(self) -> None:
        keyed = key_arrays_of(random_forest())
        self.full = keyed[3].tolist()
        self.name = namer(keyed)
        self.store = self.made(_core.Keys(*keyed))
        self.now = 0
        #: request → lease, allocated blocks.
        self.running: dict[int, tuple[int, int]] = {}
        self.ended: list[int] = []

    def made(self, keys: _core.Keys) -> Any:
        """Return a store of these keys, and make what it is compared with."""
        raise NotImplementedError

    def reserved(self, request: int, hits: int, blocks: int, occupancy: list[int] | None) -> None:
        """Compare a first reservation."""

    def grew(self, blocks: dict[int, int], occupancy: list[int] | None) -> None:
        """Compare a further reservation of several requests, all or nothing."""

    def shared(self, request: int, blocks: int) -> None:
        """Note that a request's first blocks have been committed."""

    def left(self, request: int) -> None:
        """Note that a request has ended."""

    @rule(request=REQUESTS, less=LESS, more=st.integers(0, 2))
    def admit(self, request: int, less: int, more: int) -> None:
        self.now += 1
        found, ready = self.store.peek(request, self.full[request])
        assert found == ready
        hits = max(min(found, self.full[request] - 1) - less, 0)
        lease = call(self.store, "acquire", (request, hits))
        if request in self.running:
            assert "the request has a lease" in lease
            return
        assert self.store.depth(lease) == hits
        blocks = self.full[request] - hits + min(more, self.most_more)
        occupancy = self.store.reserve(lease, blocks, self.now)
        SEEN["hit"] += hits > 0
        self.reserved(request, hits, blocks, occupancy)
        if occupancy is None:
            SEEN["refusal"] += 1
            self.store.abandon(lease)
            self.ended.append(lease)
            return
        self.running[request] = (lease, hits + blocks)

    @rule(request=REQUESTS, less=LESS)
    def run_whole(self, request: int, less: int) -> None:
        if request not in self.running:
            self.admit(request, less, 0)
            self.share(request, 40)
            self.end(request)

    @rule(request=REQUESTS, blocks=st.integers(0, 3))
    def grow(self, request: int, blocks: int) -> None:
        if request in self.running:
            self.take({request: blocks})

    @rule(blocks=st.lists(st.integers(0, 1), min_size=8, max_size=8))
    def grow_together(self, blocks: list[int]) -> None:
        """As decoding does: all or nothing."""
        SEEN["refused together"] += not self.take(dict(zip(sorted(self.running), blocks, strict=False)))

    def take(self, blocks: dict[int, int]) -> bool:
        self.now += 1
        occupancy = self.store.reserve_many([(self.running[r][0], n) for r, n in blocks.items()], self.now)
        self.grew(blocks, occupancy)
        for request, n in blocks.items() if occupancy is not None else ():
            lease, held = self.running[request]
            self.running[request] = (lease, held + n)
        return occupancy is not None

    @rule(request=REQUESTS, blocks=st.sampled_from([1, 2, 5, 40]))
    def share(self, request: int, blocks: int) -> None:
        if request in self.running:
            lease, held = self.running[request]
            merged = self.store.merged_blocks
            to = min(self.store.depth(lease) + blocks, held)
            self.store.commit(lease, to)
            self.shared(request, to)
            SEEN["merged"] += self.store.merged_blocks > merged

    @rule(request=REQUESTS)
    def end(self, request: int) -> None:
        if request in self.running:
            self.now += 1
            lease, _ = self.running.pop(request)
            self.store.release(lease, self.now)
            self.left(request)
            self.ended.append(lease)

    @rule(
        name=st.sampled_from(["release", "commit", "reserve", "abandon", "depth"]), which=st.integers(0, 99)
    )
    def call_with_an_ended_lease(self, name: str, which: int) -> None:
        if self.ended:
            rest = {"release": (1,), "commit": (2,), "reserve": (1, 1)}.get(name, ())
            assert call(self.store, name, (self.ended[which % len(self.ended)], *rest)) == NO_LEASE

    @rule(request=REQUESTS, name=st.sampled_from(["commit", "abandon"]))
    def ask_too_much(self, request: int, name: str) -> None:
        if request in self.running:
            lease, held = self.running[request]
            digest = self.store.digest
            assert isinstance(call(self.store, name, (lease, *([held + 1] * (name == "commit")))), str)
            assert self.store.digest == digest, "refused without effect"

    @invariant()
    def capacities_add_up(self) -> None:
        if not hasattr(self, "store"):
            return
        self.store.check()
        occupancy = self.store.occupancy(0)
        assert occupancy.free_blocks + occupancy.held_blocks + occupancy.cached_blocks == self.capacity
        SEEN["eviction"] += self.store.eviction_counts(0).evicted_blocks > 0

    def teardown(self) -> None:
        for request in sorted(getattr(self, "running", {})):
            self.end(request)
        if hasattr(self, "store"):
            self.capacities_add_up()
            assert self.store.occupancy(0).held_blocks == 0


def named(code: int) -> tuple[object, ...]:
    """Return the key that the core writes as an integer, as ``namer`` names it."""
    if code >> 63:
        return "own", (code >> 32) & 0x7FFF_FFFF, code & 0xFFFF_FFFF
    return divmod(code, 2)


class VllmPool(EngineStore):
    """vLLM's pool compared with its model."""

    model_of = PoolModel

    def made(self, keys: _core.Keys) -> Any:
        self.model = self.model_of(self.name, self.capacity, [0] * len(self.full), 1)
        return _core.PoolStore(keys, self.capacity)

    def reserved(self, request: int, hits: int, blocks: int, occupancy: list[int] | None) -> None:
        waits = self.model.reserve(request, hits, blocks)
        assert occupancy == (None if waits is None else [])

    def grew(self, blocks: dict[int, int], occupancy: list[int] | None) -> None:
        fits = sum(blocks.values()) <= len(self.model.free)
        assert occupancy == ([] if fits else None)
        for request, n in blocks.items() if fits else ():
            self.model.grow(request, n)

    def shared(self, request: int, blocks: int) -> None:
        self.model.commit(request, blocks)

    def left(self, request: int) -> None:
        self.model.release(request)

    @invariant()
    def the_pool_is_its_model(self) -> None:
        if not hasattr(self, "store"):
            return
        assert tuple(self.store.occupancy(GPU)) == self.model.occupancy(GPU)
        assert tuple(self.store.eviction_counts(GPU)) == (self.model.evicted[GPU], 0, 0)
        assert self.store.merged_blocks == 0
        queue = [None if key is None else named(key) for key in self.store.free_queue()]
        assert queue == [block.key for block in self.model.free]
        for request in NUMBERS:
            assert self.store.peek(request, 40) == self.model.peek(request, 40)
        for request, (lease, _) in self.running.items():
            assert self.store.depth(lease) == self.model.depth[request]


class SglangTree(EngineStore):
    """SGLang's tree: bounds of what a look-up finds."""

    #: The strategy and the tokens of a page.
    strategy: ClassVar[tuple[str, int]] = ("lru", 1)
    most_more = 0

    def made(self, keys: _core.Keys) -> Any:
        name, page = self.strategy
        prompts = [blocks * page + r % page for r, blocks in enumerate(self.full)]
        self.model = Shown(self.name)
        #: Pages that a running request has computed or found.
        self.computed: dict[int, int] = {}
        totals = [prompt + 3 * page for prompt in prompts]
        return _core.RadixStore(keys, (name, ""), page, (self.capacity, 0), (prompts, totals))

    def shared(self, request: int, blocks: int) -> None:
        """A prompt is the tree's at once, an answer at the request's end."""
        self.model.show(request, min(blocks, self.full[request]))
        self.computed[request] = blocks

    def left(self, request: int) -> None:
        self.model.show(request, self.computed.pop(request, 0))
        self.model.leave(request)

    @invariant()
    def what_was_shown_is_found(self) -> None:
        if not hasattr(self, "store"):
            return
        evicted = self.store.eviction_counts(0).evicted_blocks
        for request in NUMBERS:
            found, _ = self.store.peek(request, self.full[request])
            most = self.model.most(request, self.full[request])
            assert self.model.least(request, self.full[request]) <= found <= most
            assert evicted or found == most


SESSION = examples(60, stateful_step_count=60, suppress_health_check=list(HealthCheck))
SHAPES: dict[str, tuple[type[EngineStore], dict[str, Any]]] = {
    "vllm": (VllmPool, {}),
    "vllm, little memory": (VllmPool, {"capacity": 18}),
    "sglang lru": (SglangTree, {"strategy": ("lru", 1), "capacity": 48}),
    "sglang lfu, pages of 4": (SglangTree, {"strategy": ("lfu", 4)}),
    "sglang slru, pages of 16": (SglangTree, {"strategy": ("slru", 16)}),
    "sglang fifo": (SglangTree, {"strategy": ("fifo", 4), "capacity": 30}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_store_answers_as_it_must(shape: str) -> None:
    SEEN.clear()
    machine, changes = SHAPES[shape]
    run_state_machine_as_test(type("Machine", (machine,), changes), settings=SESSION)
    seldom = {"refused together"} if machine is SglangTree else {"merged", "refused together"}
    missing = {case for case in ("hit", "refusal", "eviction", "merged") if not SEEN[case]} - seldom
    assert not missing or SESSION.max_examples < 60, f"the session never saw: {sorted(missing)}"


class TakesTheNewest(PoolModel):
    """A model that is wrong."""

    def release(self, request: int) -> None:
        super().release(request)
        self.free.reverse()


def test_a_pool_with_another_rule_is_detected() -> None:
    machine = type("Machine", (VllmPool,), {"model_of": TakesTheNewest})
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            machine, settings=settings(SESSION, max_examples=60, phases=[Phase.generate], print_blob=False)
        )
