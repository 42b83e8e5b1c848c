"""Requests through the reference of vLLM's block pool, times ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvcache_sim.reference.causes.engine import MissCauses
from kvcache_sim.reference.engines.requests import Overlap, Requests
from kvcache_sim.reference.engines.vllm_pool import VllmPool
from kvcache_sim.replay.request import REJECTED


def replay_vllm_reference(requests: Requests, capacity_blocks: int) -> dict[str, Any]:
    """Replay every request and return what ``_core.EngineRequests.vllm`` returns, the queue as text."""
    pool, overlap = VllmPool(capacity_blocks), Overlap(requests.window)
    causes = MissCauses(requests.block_size)
    hits: list[int] = []
    forced = 0

    def with_room(attempt: Callable[[], bool]) -> bool:
        nonlocal forced
        while not attempt():
            if not overlap.running:
                return False
            pool.release(overlap.running.popleft())
            forced += 1
        return True

    for request, n in enumerate(requests.input_tokens):
        blocks = -(-n // requests.block_size)
        total_blocks = -(-requests.total_tokens[request] // requests.block_size)
        whole, evictions = requests.whole(request), len(pool.evicted)
        for oldest in overlap.before_start():
            pool.release(oldest)
        askable = requests.keys.keys(request, requests.limit(request))
        found = askable[: pool.peek(askable)]
        causes.count(n, askable, len(found), pool.blocks_of.__contains__)
        causes.learn(whole)
        fits = with_room(lambda: pool.allocate(request, found, blocks))  # noqa: B023
        if fits:
            pool.cache(request, requests.prompt(request))
            fits = with_room(lambda: pool.extend(request, total_blocks))  # noqa: B023
        causes.evict(request, [key for key in pool.evicted[evictions:] if key not in pool.blocks_of])
        if not fits:
            if request in pool.held:
                pool.release(request)
            causes.reject()
            hits.append(REJECTED)
            continue
        pool.cache(request, whole)
        hits.append(len(found) * requests.block_size)
        for ended in overlap.start(request):
            pool.release(ended)
    while overlap.running:
        pool.release(overlap.running.popleft())
    return {
        "hits": hits,
        "forced": forced,
        **pool.figures(requests.keys.label),
        "miss_tokens": causes.tokens,
        "evicted_misses": causes.evicted_misses,
    }
