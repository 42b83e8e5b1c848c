"""HiCache's storage below the host (L3): pages by key, and what a bounded folder of files evicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from kvcache_sim.replay.block_keys import Key


class Storage:
    """Pages under their keys, least recent first; ``capacity_pages`` None: without a bound.

    With one it is SGLang's file backend with a greatest size: what does not fit sends the least recent files
    away until nine tenths are taken (``srt/mem_cache/storage/file/lru_file_evictor.py``, 0.5.23).
    """

    def __init__(self, capacity_pages: int | None) -> None:
        self.capacity_pages = capacity_pages
        self.pages: dict[Key, None] = {}
        self.written = self.evicted = 0

    def found(self, keys: Sequence[Key]) -> int:
        """Return how many leading pages are there; a look-up is no use."""
        return sum(1 for _ in takewhile(self.pages.__contains__, keys))

    def read(self, keys: Iterable[Key]) -> None:
        """Make pages the most recent, one after another."""
        for key in keys:
            del self.pages[key]
            self.pages[key] = None

    def write(self, keys: Iterable[Key]) -> list[Key]:
        """Keep pages; return those that went for them. One that is there becomes the most recent."""
        gone = list[Key]()
        for key in keys:
            if key in self.pages:
                self.read([key])
                continue
            gone += self._make_room()
            self.pages[key] = None
            self.written += 1
        return gone

    def _make_room(self) -> list[Key]:
        gone = list[Key]()
        if self.capacity_pages is not None and len(self.pages) == self.capacity_pages:
            while self.pages and 10 * (len(self.pages) + 1) > 9 * self.capacity_pages:
                oldest = next(iter(self.pages))
                del self.pages[oldest]
                gone.append(oldest)
        self.evicted += len(gone)
        return gone
