"""LMCache's server by its rules, one call after another, and prompts with times for it."""

from collections import OrderedDict
from itertools import takewhile

import numpy as np
from hypothesis import strategies as st

SECOND = 10**9


class Lru:
    """Keys, the oldest first."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def write(self, key: str) -> None:
        self.keys.append(key)

    def touch(self, key: str) -> None:
        if key in self.keys:
            self.keys.remove(key)
            self.keys.append(key)

    def drop(self, count: int) -> None:
        del self.keys[:count]

    def forget(self, key: str) -> None:
        self.keys.remove(key)

    keep = write


class Arc:
    """Keys used once and again, with ghosts of both; the capacity is the most keys seen at a time."""

    def __init__(self) -> None:
        self.once, self.again, self.ghosts_once, self.ghosts_again = (OrderedDict() for _ in range(4))
        self.target, self.most = 0.0, 0

    @property
    def keys(self) -> list[str]:
        return [*self.once, *self.again]

    def write(self, key: str) -> None:
        once, again = len(self.ghosts_once), len(self.ghosts_again)
        if key in self.ghosts_once:
            self.target = min(self.most, self.target + max(1, again / once))
            del self.ghosts_once[key]
        elif key in self.ghosts_again:
            self.target = max(0, self.target - max(1, once / again))
            del self.ghosts_again[key]
        self.once[key] = None
        self.most = max(self.most, len(self.keys))
        self._forget()

    def touch(self, key: str) -> None:
        if key in self.keys:
            self.once.pop(key, None)
            self.again[key] = None
            self.again.move_to_end(key)

    def keep(self, key: str) -> None:
        """Take a key in storage: one that was dropped too early counts as used again."""
        if not (key in self.ghosts_once or key in self.ghosts_again):
            self.write(key)
            return
        kept, self._forget = self._forget, lambda: None  # type: ignore[method-assign]
        self.write(key)
        self._forget = kept  # type: ignore[method-assign]
        self.again[key] = self.once.pop(key)
        self._forget()

    def forget(self, key: str) -> None:
        self.once.pop(key, None)
        self.again.pop(key, None)

    def drop(self, count: int) -> None:
        for _ in range(min(count, len(self.keys))):
            from_once = bool(self.once) and (len(self.once) >= int(self.target) or not self.again)
            kept, ghosts = (self.once, self.ghosts_once) if from_once else (self.again, self.ghosts_again)
            ghosts[kept.popitem(last=False)[0]] = None
        self._forget()

    def _forget(self) -> None:
        while self.ghosts_once and len(self.once) + len(self.ghosts_once) > self.most:
            self.ghosts_once.popitem(last=False)
        while len(self.keys) + len(self.ghosts_once) + len(self.ghosts_again) > 2 * self.most:
            (self.ghosts_again or self.ghosts_once).popitem(last=False)


def modelled(rows, times_s, chunks, policy, window, step_chunks, in_pool=None, disk=0) -> dict:
    """The figures by the rules, one call after another; every row is whole chunks.

    ``in_pool``: by request the chunks that an engine's pool has, from which on the server looks up. ``disk``:
    chunks of the storage.
    """
    kept, below = ({"lru": Lru, "arc": Arc}[policy]() for _ in range(2))
    hits, from_disk, stored, lost, second, running, dropped = [], [], 0, 0, 1, [], [0, 0]

    def end(row: list[str], *levels) -> None:
        for key in reversed(row):
            for level in levels or (kept, below):
                level.touch(key)

    def leading(row: list[str], start: int, *levels) -> int:
        is_here = (any(key in level.keys for level in levels) for key in row[start:])
        return start + sum(takewhile(bool, is_here))

    for row, now, start in zip(rows, times_s, in_pool or [0] * len(rows), strict=True):
        while second <= now:
            for at, (level, most) in enumerate(((kept, chunks), (below, disk))):
                if level.keys and 10 * len(level.keys) >= 8 * most:
                    dropped[at] += max(1, len(level.keys) // 5)
                    level.drop(max(1, len(level.keys) // 5))
            second += 1
        if window and len(running) == window:
            end(running.pop(0))
        end(row[:start])
        found = leading(row, start, kept, below)
        brought = [key for key in row[start:found] if key not in kept.keys]
        if len(kept.keys) + len(brought) > chunks:
            found, brought = leading(row, start, kept), []
        for key in reversed(brought):
            kept.write(key)
        end(brought, below)
        end(row[start:found], kept)
        for key in brought:
            kept.forget(key)
        for at in range(found, len(row), step_chunks):
            new = [key for key in row[at : at + step_chunks] if key not in kept.keys]
            if len(kept.keys) + len(new) > chunks:
                lost += len(new)
                continue
            stored += len(new)
            for key in reversed(new):
                kept.write(key)
            new = [key for key in new if key not in below.keys][: disk - len(below.keys)]
            for key in reversed(new):
                below.keep(key)
        running.append(row)
        if not window:
            end(running.pop())
        hits.append(found)
        from_disk.append(len(brought))
    for row in running:
        end(row)
    figures = {"hits": hits, "from_disk": from_disk, "stored_chunks": stored, "lost_chunks": lost}
    figures |= {"final_cpu_chunks": len(kept.keys), "cpu_evictions": dropped[0]}
    return figures | ({"final_disk_chunks": len(below.keys), "disk_evictions": dropped[1]} if disk else {})


DRAWN = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 9), st.sampled_from([0, 0.25, 1, 1.5])),
    min_size=2,
    max_size=40,
)


def rows_and_times(drawn) -> tuple[list[list[str]], list[float]]:
    """Return prompts that share a beginning, and their times."""
    rows = [
        [f"{document}.{k}" if k < common else f"own{at}.{k}" for k in range(blocks)]
        for at, (document, blocks, common, _) in enumerate(drawn)
    ]
    times_s = (1 + np.cumsum([gap for *_, gap in drawn])).tolist()
    return rows, [0.0, *times_s[1:]]
