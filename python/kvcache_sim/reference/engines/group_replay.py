"""Requests through the reference of vLLM's manager of several KV cache groups, times ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvcache_sim.model.kv_groups import KvLayout
from kvcache_sim.reference.engines.group_manager import Allowance, GroupLimits, GroupManager
from kvcache_sim.reference.engines.group_pool import GroupPool
from kvcache_sim.reference.engines.group_rules import Chunk, chunk_end
from kvcache_sim.reference.engines.requests import Overlap, Requests
from kvcache_sim.replay.request import REJECTED


def replay_groups_reference(
    requests: Requests, layout: KvLayout, capacity_blocks: int, limits: tuple[int, int | None, int]
) -> dict[str, Any]:
    """Replay every request, chunk by chunk and token by token, and return what the core returns.

    ``limits`` are tokens of a step, the retention interval, and the longest sequence.
    """
    replay = _Replay(requests, layout, capacity_blocks, GroupLimits(*limits))
    hits = [replay.run(request) for request in range(len(requests.input_tokens))]
    pool = replay.manager.pool
    while replay.overlap.running:
        replay.manager.release(replay.overlap.running.popleft())
    return {
        "hits": hits,
        "forced": replay.forced,
        "taken": pool.taken,
        "inserted": pool.inserted,
        "evicted": pool.evicted,
        "junctions": replay.junctions,
        "alone": replay.alone_tokens,
        "lost_not_kept": replay.lost_not_kept,
        "lost_evicted": replay.lost_evicted,
        "chunks": replay.chunks,
        "peak_used_blocks": replay.peak,
        "keyed_at_end": pool.keyed_free(len(layout.groups)),
        "free_queue": [pool.key_of.get(block) for block in pool.free],
    }


class _Replay:
    """Requests one after another, or overlapping in a window."""

    def __init__(self, requests: Requests, layout: KvLayout, capacity: int, limits: GroupLimits) -> None:
        align = layout.scheduler_block_size
        self.requests = requests
        self.manager = GroupManager(requests.keys, layout.groups, align, limits, GroupPool(capacity))
        self.overlap = Overlap(requests.window)
        self.lost_not_kept, self.lost_evicted = [0] * len(layout.groups), [0] * len(layout.groups)
        self.alone_tokens = [0] * len(layout.groups)
        self.forced = self.junctions = self.chunks = self.peak = 0

    def run(self, request: int) -> int:
        """Run one request until its last token and return its hit."""
        manager, prompt = self.manager, self.requests.input_tokens[request]
        for oldest in self.overlap.before_start():
            manager.release(oldest)
        found = manager.look_up(request, prompt - 1)
        self.junctions += found.junction_tokens > 0
        alone = [manager.alone(request, number, prompt - 1) for number in range(len(manager.groups))]
        for group, not_kept in manager.lost(request, found):
            lost = self.lost_not_kept if not_kept else self.lost_evicted
            lost[group] += found.junction_tokens - found.tokens
        if not self._compute(request, prompt, found) or not self._decode(request, prompt):
            if request in manager.tables:
                manager.release(request)
            return REJECTED
        self.alone_tokens = [a + b for a, b in zip(self.alone_tokens, alone, strict=True)]
        self.peak = max(self.peak, manager.pool.capacity_blocks - len(manager.pool.free))
        for ended in self.overlap.start(request):
            manager.release(ended)
        return found.tokens

    def _compute(self, request: int, prompt: int, found: Any) -> bool:
        manager, at = self.manager, found.tokens
        while at < prompt:
            step = manager.limits.max_num_batched_tokens
            chunk = Chunk(at, min(step, prompt - at), step, prompt, prompt, found.junction_tokens)
            end = chunk_end(manager.groups, chunk)
            first = at == found.tokens
            fits = (
                self._with_room(lambda: manager.admit(request, prompt, found, end, Allowance(prompt, step)))  # noqa: B023
                if first
                else self._with_room(lambda: manager.extend(request, end))  # noqa: B023
            )
            if not fits:
                return False
            manager.compute(request, end)
            self.chunks += 1
            at = end
        return True

    def _decode(self, request: int, prompt: int) -> bool:
        for end in range(prompt + 1, self.requests.total_tokens[request] + 1):
            if not self._with_room(lambda: self.manager.extend(request, end)):  # noqa: B023
                return False
            self.manager.compute(request, end)
        return True

    def _with_room(self, attempt: Callable[[], bool]) -> bool:
        while not attempt():
            if not self.overlap.running:
                return False
            self.manager.release(self.overlap.running.popleft())
            self.forced += 1
        return True
