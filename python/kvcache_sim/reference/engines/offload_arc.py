"""The adaptive policy (ARC, Megiddo and Modha, FAST 2003) of vLLM's CPU offloading tier, key by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvcache_sim.reference.engines.offload_access import Access
from kvcache_sim.replay.block_keys import Key

Queue = OrderedDict[Key, None]


@dataclass(slots=True)
class OffloadArc:
    """Keys used once (t1), keys used again (t2) and the ghosts of both (b1, b2), least recent first.

    Rules: vLLM 0.33.0, ``kv_offload/cpu/policies/arc.py``; ``target`` is the size that t1 strives for.
    """

    capacity_blocks: int
    t1: Queue = field(default_factory=OrderedDict)
    t2: Queue = field(default_factory=OrderedDict)
    b1: Queue = field(default_factory=OrderedDict)
    b2: Queue = field(default_factory=OrderedDict)
    target: float = 0.0

    def __contains__(self, key: Key) -> bool:
        return key in self.t1 or key in self.t2

    def __len__(self) -> int:
        return len(self.t1) + len(self.t2)

    def access(self, keys: Sequence[Key]) -> None:
        """Learn the keys that a request has used so far: its end counts."""

    def offer(self, keys: Sequence[Key]) -> None:
        """Move the target by each key that was evicted too early: up for b1, down for b2."""
        for key in reversed(keys):
            if key in self.b1:
                step = max(1.0, len(self.b2) / len(self.b1))
                self.target = min(self.target + step, float(self.capacity_blocks))
                self.b1.move_to_end(key)
            elif key in self.b2:
                step = max(1.0, len(self.b1) / len(self.b2))
                self.target = max(self.target - step, 0.0)
                self.b2.move_to_end(key)

    def store(self, new: Sequence[Key], protected: set[Key]) -> list[Key] | None:
        """Insert the keys in t1 and return those evicted for them, or None (and no change) without room."""
        shortfall = max(0, len(self.t1) + len(self.t2) + len(new) - self.capacity_blocks)
        once = iter([key for key in self.t1 if key not in protected])
        again = iter([key for key in self.t2 if key not in protected])
        size, victims = len(self.t1), []
        for _ in range(shortfall):
            queues = (once, again) if size >= int(self.target) else (again, once)
            victim = next(queues[0], None) or next(queues[1], None)
            if victim is None:
                return None
            victims.append(victim)
            if victim in self.t1:
                size -= 1
        for key in victims:
            source, ghosts = (self.t1, self.b1) if key in self.t1 else (self.t2, self.b2)
            del source[key]
            ghosts[key] = None
        for ghosts in (self.b1, self.b2):
            while len(ghosts) > self.capacity_blocks:
                ghosts.popitem(last=False)
        for key in new:
            self.t1[key] = None
            self.b1.pop(key, None)
            self.b2.pop(key, None)
        return victims

    def finish(self, used: Sequence[tuple[Key, Access]]) -> None:
        """Move the request's keys, last to first: known ones to the end of t2, stored ones to that of t1."""
        for key, access in reversed(used):
            if access is Access.REFUSED:
                continue
            if key in self.t2:
                self.t2.move_to_end(key)
            elif key in self.t1 and access is Access.STORED:
                self.t1.move_to_end(key)
            elif key in self.t1:
                del self.t1[key]
                self.t2[key] = None

    def sizes(self) -> dict[str, int | float]:
        """Return the length of each queue and the target."""
        return {
            "t1": len(self.t1),
            "t2": len(self.t2),
            "b1": len(self.b1),
            "b2": len(self.b2),
            "target_t1": self.target,
        }
