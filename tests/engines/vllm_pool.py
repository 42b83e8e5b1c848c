"""Replays through vLLM's block pool by the small model of it (``tiered_pool.PoolModel``).

Rules: vLLM 0.33.0, ``vllm/v1/core/block_pool.py`` and ``kv_cache_manager.py`` (watermark 0, one full-attention group).
"""

from collections import deque
from collections.abc import Callable

from kvcache_sim.replay.engine_requests import block_keys, total_tokens
from kvcache_sim.replay.request import REJECTED, ReplayRequest
from support.miss_causes import CAUSES, MissCauses
from tiered_pool import PoolModel


def replay(request: ReplayRequest) -> tuple[PoolModel, MissCauses, list[int], int]:
    """Return the pool at the end, the causes of misses, hit tokens by request, and requests ended early."""
    keys, size = block_keys(request), request.block_size_tokens
    pool = PoolModel(keys.key, request.capacity_blocks, request.trace.input_tokens.tolist(), size)
    causes = MissCauses(size)
    running: deque[int] = deque()
    hits: list[int] = []
    forced = 0

    def with_space(attempt: Callable[[], object]) -> bool:
        nonlocal forced
        while attempt() is None:
            if not running:
                return False
            pool.release(running.popleft())
            forced += 1
        return True

    ends = zip(request.trace.input_tokens.tolist(), total_tokens(request).tolist(), strict=True)
    for i, (prompt, total) in enumerate(ends):
        if request.window and len(running) == request.window:
            pool.release(running.popleft())
        askable, first = keys.keys(i, (prompt - 1) // size), -(-prompt // size)
        found, before = pool.in_pool(i, len(askable)), list(pool.of_key)
        causes.count(prompt, askable, found, pool.of_key.__contains__)
        causes.learn(keys.keys(i, total // size))
        fits = with_space(lambda: pool.reserve(i, found, first - found))  # noqa: B023
        if fits:
            pool.commit(i, prompt // size)
            fits = with_space(lambda: pool.grow(i, -(-total // size) - first))  # noqa: B023
        left = [key for key in before if key not in pool.of_key]
        causes.evicted_by.update(dict.fromkeys(left, i))
        if fits:
            pool.commit(i, total // size)
            hits.append(found * size)
            running.append(i)
        else:
            causes.tokens[-1] = [0] * len(CAUSES)  # a rejected request neither hits nor misses
            hits.append(REJECTED)
        if (not fits and i in pool.held) or (fits and not request.window):
            pool.release(running.pop() if fits else i)
    while running:
        pool.release(running.popleft())
    return pool, causes, hits, forced
