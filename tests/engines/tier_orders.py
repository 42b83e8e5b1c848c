"""Small models of the orders in which engines' tiers give keys up: vLLM's LRU and ARC, LMCache's four
policies.

They share no code with the core. A tier answers ``key in tier`` and ``len(tier)``.
"""

from collections.abc import Collection, Iterable, Sequence

#: Outcome of a request for a key: stored, found there, or refused because the tier was full.
STORED, REUSED, REFUSED = "stored", "reused", "refused"


class Lru:
    """Keys by last use, the least recent first (vLLM 0.33.0, ``kv_offload/cpu/policies/lru.py``)."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.keys = capacity, list[object]()

    def __contains__(self, key: object) -> bool:
        return key in self.keys

    def __len__(self) -> int:
        return len(self.keys)

    def offer(self, keys: Sequence[object]) -> None:
        """Accept the keys about to be stored, without effect."""

    def store(self, new: Sequence[object], kept: Collection[object]) -> list[object] | None:
        """Add keys; return the evicted keys, or None if they do not fit, and then change nothing."""
        lacking = max(0, len(self) + len(new) - self.capacity)
        victims = [key for key in self.keys if key not in kept][:lacking]
        if len(victims) < lacking:
            return None
        self.keys = [key for key in self.keys if key not in victims] + list(new)
        return victims

    def use(self, keys: Sequence[object]) -> None:
        """Make keys the most recent, the first of them last."""
        here = [key for key in reversed(keys) if key in self.keys]
        self.keys = [key for key in self.keys if key not in here] + here

    def finish(self, used: Sequence[tuple[object, str]]) -> None:
        """Finish a request: its keys are used once more."""
        self.use([key for key, _ in used])


class Arc:
    """Keys used once, keys used again, and ghosts of both (``policies/arc.py``; Megiddo and Modha, FAST
    2003)."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.target = capacity, 0.0
        self.once, self.again = list[object](), list[object]()
        self.once_gone, self.again_gone = list[object](), list[object]()

    def __contains__(self, key: object) -> bool:
        return key in self.once or key in self.again

    def __len__(self) -> int:
        return len(self.once) + len(self.again)

    def offer(self, keys: Sequence[object]) -> None:
        """Move the target by each key that left too early, the last one first."""
        for key in reversed(keys):
            for gone, other, variant in (
                (self.once_gone, self.again_gone, 1),
                (self.again_gone, self.once_gone, -1),
            ):
                if key in gone:
                    step = variant * max(1.0, len(other) / len(gone))
                    self.target = min(max(self.target + step, 0.0), float(self.capacity))
                    _to_end(gone, key)
                    break

    def store(self, new: Sequence[object], kept: Collection[object]) -> list[object] | None:
        """Add keys as used once; return the evicted keys, or None if they do not fit, and then change
        nothing."""
        once, again = ([key for key in keys if key not in kept] for keys in (self.once, self.again))
        left, victims = len(self.once), list[object]()
        for _ in range(max(0, len(self) + len(new) - self.capacity)):
            first, second = (once, again) if left >= int(self.target) else (again, once)
            if not first and not second:
                return None
            victims.append((first or second).pop(0))
            left -= victims[-1] in self.once
        for key in victims:
            keys, gone = (self.once, self.once_gone) if key in self.once else (self.again, self.again_gone)
            keys.remove(key)
            gone.append(key)
        for gone in (self.once_gone, self.again_gone):
            del gone[: max(0, len(gone) - self.capacity)]
            gone[:] = [key for key in gone if key not in new]
        self.once += new
        return victims

    def use(self, keys: Sequence[object]) -> None:
        """Accept the keys of a running request, whose end alone counts."""

    def finish(self, used: Sequence[tuple[object, str]]) -> None:
        """Finish a request: stored keys are recent, found keys are used again."""
        for key, access in reversed(used):
            if access == REFUSED:
                continue
            if key in self.again:
                _to_end(self.again, key)
            elif key in self.once and access == STORED:
                _to_end(self.once, key)
            elif key in self.once:
                self.once.remove(key)
                self.again.append(key)


class Chunks:
    """A tier of LMCache's under lru, lfu, fifo or mru (0.5.6, ``storage_backend/cache_policy``)."""

    def __init__(self, policy: str, capacity: int) -> None:
        self.policy, self.capacity, self.evicted = policy, capacity, 0
        #: By key its hits and the insertion, oldest first; under lru and mru a hit is an insertion.
        self.hits: dict[object, int] = {}

    def __contains__(self, key: object) -> bool:
        return key in self.hits

    def __len__(self) -> int:
        return len(self.hits)

    def put(self, key: object) -> None:
        """Add a chunk that is not there."""
        self.hits[key] = 1

    def hit(self, key: object) -> None:
        """Count a hit of a chunk that is there."""
        if self.policy != "fifo":
            self.hits[key] = self.hits.pop(key) + 1

    def evict(self, kept: Iterable[object] = ()) -> bool:
        """Remove the next chunk that is not kept; False where there is none."""
        order = list(self.hits)
        if self.policy == "lfu":
            order.sort(key=self.hits.__getitem__)
        may_go = [key for key in order if key not in set(kept)]
        if not may_go:
            return False
        del self.hits[may_go[-1 if self.policy == "mru" else 0]]
        self.evicted += 1
        return True


def _to_end(keys: list[object], key: object) -> None:
    keys.remove(key)
    keys.append(key)
