"""LMCache's CPU and disk tiers by lists, one request after another (LMCache 0.5.6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from kvcache_sim.reference.causes.engine import MissCauses
from kvcache_sim.reference.engines.requests import Requests
from kvcache_sim.replay.block_keys import Key


@dataclass(slots=True)
class Tier:
    """Chunks in a list, the oldest first; under LFU a list for each count, by the time it was reached."""

    policy: str
    capacity: int
    chunks: list[Key] = field(default_factory=list)
    counts: dict[Key, int] = field(default_factory=dict)
    evictions: int = 0

    def __contains__(self, key: Key) -> bool:
        return key in self.counts

    def __len__(self) -> int:
        return len(self.chunks)

    def put(self, key: Key) -> None:
        """Add a chunk."""
        self.chunks.append(key)
        self.counts[key] = 1

    def hit(self, key: Key) -> None:
        """Count a hit."""
        if self.policy != "fifo":
            self.chunks.remove(key)
            self.chunks.append(key)
            self.counts[key] += 1

    def order(self) -> list[Key]:
        """Return the chunks, oldest first; under LFU fewest hits first."""
        if self.policy == "lfu":
            return sorted(self.chunks, key=self.counts.__getitem__)
        return list(self.chunks)

    def evict(self, pinned: Iterable[Key] = ()) -> Key | None:
        """Remove and return the next chunk that is not pinned, None where there is none."""
        order = self.order()
        for key in reversed(order) if self.policy == "mru" else order:
            if key not in pinned:
                self.chunks.remove(key)
                del self.counts[key]
                self.evictions += 1
                return key
        return None


def replay_lmcache_reference(
    requests: Requests, policy: str, cpu_chunks: int, disk_chunks: int
) -> dict[str, Any]:
    """Replay every request and return what ``_core.replay_lmcache`` returns, keys as the trace's."""
    cpu, disk = Tier(policy, cpu_chunks), Tier(policy, disk_chunks)
    causes = MissCauses(requests.block_size)
    hits, from_disk, cpu_hits, stored, short = list[int](), list[int](), 0, 0, 0
    taken = 0

    def take(pinned: list[Key]) -> bool:
        nonlocal taken
        victim = None
        if len(cpu.chunks) + taken == cpu.capacity:
            victim = cpu.evict(pinned)
            if victim is None:
                return False
            if victim not in disk.chunks:
                causes.evict(request, [victim])
        taken += 1
        return True

    for request, n in enumerate(requests.input_tokens):
        keys = requests.prompt(request)
        on_cpu = list(takewhile(cpu.chunks.__contains__, keys))
        on_disk = list(takewhile(disk.chunks.__contains__, keys[len(on_cpu) :]))
        for key in reversed(on_cpu):
            cpu.hit(key)
        for key in reversed(on_disk):
            disk.hit(key)
        # the engine would wait forever for more than its CPU memory
        on_disk = on_disk[: cpu_chunks - len(on_cpu)]
        found = len(on_cpu) + len(on_disk)
        causes.count(n, keys, found, lambda key: key in cpu.chunks or key in disk.chunks)
        causes.learn(keys)
        for _ in on_disk:
            assert take(on_cpu)
        for key in on_disk:
            disk.hit(key)
        for key in on_disk:
            if key not in cpu.chunks:
                cpu.put(key)
        taken = 0
        new = list(takewhile(lambda _: take([]), keys[found:]))
        taken = 0
        short += len(new) < len(keys) - found
        stored += len(new)
        for key in new:
            if key not in cpu.chunks:
                cpu.put(key)
        for key in new if disk_chunks else []:
            if key in disk.chunks:
                disk.hit(key)
                continue
            if len(disk.chunks) == disk_chunks:
                victim = disk.evict()
                if victim is not None and victim not in cpu.chunks:
                    causes.evict(request, [victim])
            disk.put(key)
        cpu_hits += len(on_cpu)
        from_disk.append(len(on_disk))
        hits.append(found * requests.block_size)
    return {
        "hits": hits,
        "from_disk": from_disk,
        "cpu_hits": cpu_hits,
        "stored": stored,
        "short_stores": short,
        "cpu_evictions": cpu.evictions,
        "disk_evictions": disk.evictions,
        "cpu_keys": cpu.order(),
        "disk_keys": disk.order(),
        "miss_tokens": causes.tokens,
        "evicted_misses": causes.evicted_misses,
    }
