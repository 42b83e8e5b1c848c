"""Walks through the stores of engines' caches: pools and trees alone, and above the tiers of each engine.

Which blocks go, and what is written when, the rows of engines' own classes judge (``test_engine_streams.py``),
through runs without time of each engine (``test_*_runs.py``, ``test_radix_semantics.py``, ``test_vllm_schedule.py``).
"""

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.base.tiers import COMPUTE, STAGING
from kvcache_sim.cache.settings import CacheSettings, TierSettings
from store_walk import REQUESTS, SEEN, STEPS, Part, StoreWalk
from support.examples import examples
from support.product.machines import StoreMaker
from support.small_traces import trace_of


class Pool(StoreWalk):
    """vLLM's pool alone."""

    pages, answers_at_once = (40,), True

    def made(self, keys: _core.Keys, prompts: list[int]) -> Any:
        return _core.PoolStore(keys, self.pages[0])


class Offloaded(StoreWalk):
    """vLLM's pool above its CPU offloading."""

    policy: ClassVar[str] = "lru"
    beyond, answers_at_once, counts_all = 1, True, True

    def made(self, keys: _core.Keys, prompts: list[int]) -> Any:
        gpu, cpu = self.pages
        return _core.TieredPoolStore.with_offload(keys, gpu, cpu, 1, self.policy, (prompts, self.page))


class Lmcache(StoreWalk):
    """vLLM's pool above LMCache's CPU and disk."""

    policy: ClassVar[str] = "lru"
    chunk_pages: ClassVar[int] = 1
    beyond, answers_at_once = 1, True

    def made(self, keys: _core.Keys, prompts: list[int]) -> Any:
        gpu, cpu, *disk = self.pages
        own = (keys, gpu, (cpu, *(disk or [0])), self.chunk_pages, f"lmcache:{self.policy}")
        return _core.TieredPoolStore.with_lmcache(*own, (prompts, self.page))


class Tree(StoreWalk):
    """SGLang's tree alone."""

    strategy: ClassVar[str] = "lru"
    pages = (40,)

    def made(self, keys: _core.Keys, prompts: list[int]) -> Any:
        own = (self.strategy, ""), self.page, (*self.pages, 0)
        return _core.RadixStore(keys, *own, self.wholes(prompts))


class HiCache(StoreWalk):
    """SGLang's tree above a host tier, and in some walks a storage."""

    steps = STEPS | {"prefetch": 3, "stop": 1}

    strategy: ClassVar[str] = "lru"
    write: ClassVar[str] = "write_through"
    #: Of a storage the fewest tokens worth a prefetch, and the share of the host that prefetches have.
    storage: ClassVar[tuple[int, float] | None] = None

    def made(self, keys: _core.Keys, prompts: list[int]) -> Any:
        self.counts_all = self.write != "write_back"  # under which copies of loaded pages leave as well
        own = None
        if self.storage is not None:
            threshold, share = self.storage
            own = (self.pages[2], -(-threshold // self.page), int(share * self.pages[1] * self.page))
        rules = (self.strategy, self.write), self.page, self.pages[:2]
        return _core.RadixStore(keys, *rules, self.wholes(prompts), own)

    def bring(self, request: int, lease: int, parts: list[Part], space: list[int]) -> None:
        assert not space or self.write == "write_back", "pages are kept until they are written"
        super().bring(request, lease, parts, space)

    def came(self) -> int:
        return self.sent[COMPUTE, STAGING] + (self.store.prefetched_blocks if self.storage else 0)

    def run_whole(self, request: int, number: int) -> None:
        super().run_whole(request, number)
        if self.storage is not None:
            self.finish_all()

    def prefetch(self, request: int, number: int) -> None:
        if self.storage is None or self.store.is_prefetching(request):
            return
        self.now += 1
        pages = (1, 3, 40, 40, 40)[number % 5]
        asked = self.store.start_prefetch(request, min(pages, self.full[request]), self.now)
        assert self.store.is_prefetching(request) == (asked > 0)
        SEEN["prefetch"] += asked > 0
        self.collect()

    def stop(self, request: int, _: int) -> None:
        """End a prefetch with what has come."""
        if self.storage is not None:
            for one in [one for one in (request, *REQUESTS) if self.store.is_prefetching(one)][:1]:
                SEEN["stopped"] += 1
                self.store.stop_prefetch(one)


LITTLE_STORAGE = {"pages": (24, 20, 20), "storage": (4, 0.5)}
SHAPES: dict[str, tuple[type[StoreWalk], dict[str, Any]]] = {
    "vllm": (Pool, {}),
    "vllm, little memory": (Pool, {"pages": (18,)}),
    "sglang lru": (Tree, {"page": 1, "pages": (48,)}),
    "sglang lfu": (Tree, {"strategy": "lfu"}),
    "sglang slru, pages of 16": (Tree, {"strategy": "slru", "page": 16}),
    "sglang fifo": (Tree, {"strategy": "fifo", "pages": (30,)}),
    "vllm-offload lru": (Offloaded, {"pages": (26, 31)}),
    "vllm-offload arc": (Offloaded, {"policy": "arc", "pages": (26, 30)}),
    "vllm-offload, little memory": (Offloaded, {"pages": (32, 8)}),
    "lmcache lru": (Lmcache, {"pages": (26, 31)}),
    "lmcache lfu, disk": (Lmcache, {"policy": "lfu", "pages": (26, 16, 28)}),
    "lmcache mru, disk": (Lmcache, {"policy": "mru", "pages": (26, 16, 28)}),
    "lmcache fifo, disk": (Lmcache, {"policy": "fifo", "pages": (26, 16, 28)}),
    "lmcache lru, disk, chunks": (Lmcache, {"pages": (26, 17, 29), "chunk_pages": 3}),
    **{
        f"hicache {name}, {write}": (HiCache, {**facts, "write": write})
        for name, facts in {
            "pages of 4": {"sees": ("load from 1", "merged")},
            "little memory": {"pages": (22, 8), "strategy": "slru"},
            "pages of 1": {"page": 1, "strategy": "lfu"},
            "pages of 16": {"page": 16, "strategy": "fifo", "pages": (26, 60), "sees": ("load from 1",)},
            "newest first": {"strategy": "mru", "pages": (24, 16)},
            "storage": {"pages": (40, 10, 200), "storage": (4, 1.0)},
            "little storage": {**LITTLE_STORAGE, "strategy": "lfu", "sees": ("load from 1",)},
        }.items()
        for write in ("write_through", "write_through_selective", "write_back")
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_store_answers_as_it_must(shape: str) -> None:
    SEEN.clear()
    engine, facts = SHAPES[shape]
    walk_of = type("Walk", (engine,), facts)

    @examples(6)
    @given(st.integers(0, 1 << 32))
    def walks(seed: int) -> None:
        walk_of().walk(seed, 200)

    walks()
    wanted = {"hit", "refusal", "eviction", *walk_of.sees} | ({"write"} if len(walk_of.pages) > 1 else set())
    missing = {case for case in wanted if not SEEN[case]}
    assert not missing, f"no walk ever saw: {sorted(missing)}"


def test_what_is_in_the_storage_alone_comes_back() -> None:
    SEEN.clear()
    for write in ("write_through", "write_through_selective", "write_back"):
        facts = {"pages": (40, 10, 200), "storage": (4, 1.0), "write": write}
        type("Walk", (HiCache,), facts)().walk(3, 300)
    assert SEEN["prefetch"]
    assert SEEN["stopped"]


def offload_store(gpu: int, cpu: int) -> Any:
    """Return an empty store of vLLM's pool and CPU tier for two prompts of four blocks each."""
    trace = trace_of([list("abcd"), list("efgh")], 4)
    cache = CacheSettings(block_size_tokens=4, semantics="vllm", lower_semantics="vllm-offload")
    tiers = TierSettings("gpu", gpu), TierSettings("cpu", cpu)
    return StoreMaker(cache, trace).make(tiers, [False, False]).gpu


def test_who_gets_blocks_that_a_copy_still_reads_waits_for_it() -> None:
    store = offload_store(5, 9)
    first = store.acquire(0, 0)
    assert store.reserve(first, 5, 0) == []
    store.commit(first, 4)
    store.step_computed([first], 0)
    [(move, *_)] = store.take_orders()
    store.release(first, 1)
    assert store.reserve(store.acquire(1, 0), 5, 1) == [move]


def test_an_offer_that_was_refused_is_made_again() -> None:
    """Two prompts of four blocks each over a tier of five: the second is refused while the first is written."""
    store = offload_store(40, 5)
    leases = [store.acquire(request, 0) for request in (0, 1)]
    orders = []
    for lease in leases:
        assert store.reserve(lease, 5, 0) == []
        store.commit(lease, 4)
        store.step_computed([lease], 0)
        orders.append(store.take_orders())
    assert [len(order) for order in orders] == [1, 0]
    store.finish_move(orders[0][0][0])
    store.step_computed(leases, 1)
    [(_, source, target, blocks, _)] = store.take_orders()
    assert (source, target, blocks) == (COMPUTE, STAGING, 4)
