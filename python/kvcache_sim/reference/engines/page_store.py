"""What the references of SGLang's trees do alike: pages found, taken and computed by request, and its end."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from kvcache_sim.reference.engines.leased_store import LeasedStore
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.reference.store.refusals import numbered
from kvcache_sim.replay.block_keys import Key


class FreeTokens(Protocol):
    """The tokens around a tree."""

    free: int

    def demand(self, tokens: int) -> None:
        """Evict until ``tokens`` are free, if need be."""


class PageStore(LeasedStore):
    """A tree of pages with one lease a request, whose last pages are checked in when it ends."""

    keys: ReferenceKeys
    page: int
    #: By running request: leading pages found, loaded or computed, and all pages that it has.
    full: dict[int, int]
    taken: dict[int, int]
    merged_blocks = 0

    @property
    @abstractmethod
    def _room(self) -> FreeTokens:
        """The tokens that are free, and how more become so."""

    @abstractmethod
    def _checkpoint(self, request: int, pages: int) -> None:
        """Check a request's first pages into the tree; what is there already becomes free."""

    @abstractmethod
    def _let_go(self, request: int) -> int:
        """Stop holding what a request has in the tree; return how many tokens that was."""

    def _names(self, request: int, pages: int) -> list[Key]:
        return [(0, self.keys.key(request, k)) for k in range(pages)]

    def _check_in(self, request: int, pages: int) -> None:
        free = self._room.free
        self._checkpoint(request, pages)
        self.merged_blocks += (self._room.free - free) // self.page

    def _extend(self, wanted: list[tuple[int, int]]) -> bool:
        """Take pages for running requests, all or nothing: (request, pages)."""
        self._room.demand(len(wanted) * self.page)
        pages = sum(n for _, n in wanted)
        if pages * self.page > self._room.free:
            return False
        self._room.free -= pages * self.page
        for request, n in wanted:
            self.taken[request] += n
        return True

    @numbered
    def depth(self, lease: int) -> int:
        """Return how many leading pages were found or computed."""
        held = self.leases.get(lease)
        return self.full[held.request] if held.is_admitted else held.hits

    @numbered
    def release(self, lease: int, now_ns: int) -> None:
        """Check everything computed into the tree and let go of it."""
        ended = self.leases.end(lease)
        if not ended.is_admitted:
            return
        request = ended.request
        self._check_in(request, self.full.pop(request))
        protected = self._let_go(request)
        self._room.free += self.taken.pop(request) * self.page - protected
