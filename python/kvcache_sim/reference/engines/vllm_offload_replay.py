"""Requests through the references of vLLM's block pool and of its CPU offloading tier, times ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvcache_sim.reference.causes.engine import MissCauses
from kvcache_sim.reference.engines.offload_tier import OffloadTier
from kvcache_sim.reference.engines.requests import Overlap, Requests
from kvcache_sim.reference.engines.vllm_pool import VllmPool
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.replay.request import REJECTED


def replay_offloading_reference(
    requests: Requests, capacity_blocks: int, variant: str, cpu_blocks: int, store_threshold: int
) -> dict[str, Any]:
    """Replay every request and return what ``vllm_offloading`` of the core returns, the queue as text."""
    tier = OffloadTier(variant, cpu_blocks, store_threshold)
    pool = VllmPool(capacity_blocks)
    overlap, causes = Overlap(requests.window), MissCauses(requests.block_size)
    hits, loaded, forced, size = list[int](), list[int](), 0, requests.block_size

    def end(request: int) -> None:
        pool.release(request)
        tier.finish(request)

    def there(key: Key) -> bool:
        return key in pool.blocks_of or tier.has(key)

    def with_room(attempt: Callable[[], bool]) -> bool:
        nonlocal forced
        while not attempt():
            if not overlap.running:
                return False
            end(overlap.running.popleft())
            forced += 1
        return True

    for request, n in enumerate(requests.input_tokens):
        prompt, whole, limit = requests.prompt(request), requests.whole(request), requests.limit(request)
        blocks = (-(-n // size), -(-requests.total_tokens[request] // size))
        evictions = len(pool.evicted)
        for oldest in overlap.before_start():
            end(oldest)
        found = pool.peek(prompt[:limit])
        # a prompt that can never fit does not ask
        below = tier.ask(request, found, prompt[found:]) if blocks[1] <= capacity_blocks else 0
        causes.count(n, prompt[: max(limit, found + below)], found + below, there)
        causes.learn(whole)
        fits = with_room(lambda: pool.allocate(request, prompt[:found], blocks[0]))  # noqa: B023
        if fits:
            pool.cache(request, prompt)
            fits = with_room(lambda: pool.extend(request, blocks[1]))  # noqa: B023
        causes.evict(request, [key for key in pool.evicted[evictions:] if key not in pool.blocks_of])
        if not fits:
            if request in pool.held:
                pool.release(request)
            causes.reject()
            hits.append(REJECTED)
            loaded.append(0)
            continue
        pool.cache(request, whole)
        hits.append(found * size)
        loaded.append(below * size)
        behind = found + below
        tier.load(request, range(found, behind), prompt[found:behind])
        start = behind if below else 0
        if prompt[start:]:
            stored = tier.offer(request, range(start, len(prompt)), prompt[start:])
            lost = [] if stored is None else stored[1]
            causes.evict(request, [key for key in lost if not there(key)])
        for ended in overlap.start(request):
            end(ended)
    while overlap.running:
        end(overlap.running.popleft())
    return {
        "hits": hits,
        "forced": forced,
        **pool.figures(requests.keys.label),
        "loaded": loaded,
        "stored": tier.stored,
        "tier_evicted": tier.evicted,
        "refused": tier.refused,
        "resident": len(tier.policy),
        "arc": tier.policy.sizes(),
        "miss_tokens": causes.tokens,
        "evicted_misses": causes.evicted_misses,
    }
