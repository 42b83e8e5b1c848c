"""SGLang's radix tree as a machine's store, in plain Python: the reference of the native ``RadixStore``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.cache.records import Recorded
from kvcache_sim.cache.store import EVICT, GpuStore, Losses, Room
from kvcache_sim.reference.engines.sglang_replay import Held, TokenRoom
from kvcache_sim.reference.engines.sglang_tree import SglangTree
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.replay.block_keys import Key


class ReferenceRadixStore(Recorded):
    """Leases, room and records over ``SglangTree``; a lease is its request, a block a page.

    A request is admitted when its prompt and all of its answer would fit (``lengths``: prompt and total
    tokens by request); its prompt is checked in as it is computed, its answer when it ends. Every decoding
    request asks for a page at every step.
    """

    def __init__(
        self,
        keys: ReferenceKeys,
        strategy: str,
        page: int,
        capacity_pages: int,
        lengths: tuple[list[int], list[int]],
    ) -> None:
        super().__init__()
        self.keys = keys
        self.page = page
        self.capacity_pages = capacity_pages
        self.prompts, self.totals = lengths
        self.tree = SglangTree(strategy)
        self.tokens = TokenRoom(self.tree, page, capacity_pages * page)
        self.hits: dict[int, int] = {}
        self.full: dict[int, int] = {}
        self.held: dict[int, Held] = {}
        #: Pages that each running request has taken or found.
        self.taken: dict[int, int] = {}
        self.merged_blocks = 0

    def _names(self, request: int, pages: int) -> list[Key]:
        return [(0, self.keys.key(request, k)) for k in range(pages)]

    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many leading pages are in the tree; all of them are ready."""
        found = self.tree.peek(self._names(request, limit))
        return found, found

    def acquire(self, request: int, depth: int) -> int:
        """Note what a request found; it is held with its room."""
        self.hits[request] = self.full[request] = depth
        return request

    def abandon(self, lease: int) -> None:
        """Do nothing: nothing was held."""

    def reserve(self, lease: int, blocks: int, now_ns: int) -> list[int] | None:
        """Hold what was found and take room for the prompt; None without effect when refused."""
        return self.reserve_many([(lease, blocks)], now_ns)

    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Take pages for several leases, all or nothing."""
        before = len(self.tree.evicted)
        if len(wanted) == 1 and wanted[0][0] not in self.held:
            got = self._admit(*wanted[0])
        else:
            got = self._extend(wanted)
        evicted = len(self.tree.evicted) - before
        if evicted:
            self._digest.record(EVICT, now_ns, 0, evicted)
            self._log_eviction(now_ns, 0, evicted)
        return [] if got else None

    def _admit(self, lease: int, pages: int) -> bool:
        hits = self.hits[lease]
        asked = hits + pages
        total = max(self.tokens.paged(self.totals[lease]), asked * self.page)
        found = self._names(lease, hits)
        room = self.tokens.free + (self.tree.evictable_pages() - self._unlocked(found)) * self.page
        if room + hits * self.page < total + self.tokens.slack():
            return False
        node, _ = self.tree.match(found)
        self.tree.lock(node, 1)
        self.tokens.demand(pages * self.page + self.tokens.slack())
        self.tokens.free -= pages * self.page
        prompt_pages = self.prompts[lease] // self.page
        self.held[lease] = Held([], prompt_pages, self.totals[lease], node, hits * self.page)
        self.taken[lease] = asked
        return True

    def _unlocked(self, path: list[Key]) -> int:
        """Return how many pages of a known path nobody locks."""
        node, walked = self.tree.root, 0
        while walked < len(path):
            node = node.children[path[walked]]
            if not node.locks:
                return len(path) - walked
            walked += len(node.key)
        return 0

    def _extend(self, wanted: list[tuple[int, int]]) -> bool:
        self.tokens.demand(len(wanted) * self.page)
        pages = sum(n for _, n in wanted)
        if pages * self.page > self.tokens.free:
            return False
        self.tokens.free -= pages * self.page
        for lease, n in wanted:
            self.taken[lease] += n
        return True

    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Check the computed pages of a prompt into the tree; note those of an answer."""
        self.full[lease] = to
        held = self.held[lease]
        pages = min(to, held.prompt_pages)
        if pages * self.page > held.protected:
            self._check_in(lease, pages)

    def _check_in(self, lease: int, pages: int) -> None:
        held = self.held[lease]
        held.keys = self._names(lease, pages)
        free = self.tokens.free
        self.tokens.checkpoint(held, pages * self.page)
        self.merged_blocks += (self.tokens.free - free) // self.page

    def depth(self, lease: int) -> int:
        """Return how many leading pages were found or computed."""
        return self.full[lease]

    def release(self, lease: int, now_ns: int) -> None:
        """Check everything computed into the tree and let go of it."""
        self._check_in(lease, self.full.pop(lease))
        held = self.held.pop(lease)
        self.tokens.free += self.taken.pop(lease) * self.page - held.protected
        self.tree.lock(held.node, -1)

    def room(self, tier: int) -> Room:
        """Return (free, held and not in the tree, in the tree, 0, of these evictable) pages."""
        free, cached = self.tokens.free // self.page, sum(len(node.key) for node in self.tree.nodes())
        return Room(free, self.capacity_pages - free - cached, cached, 0, self.tree.evictable_pages())

    def losses(self, tier: int) -> Losses:
        """Return (evicted, 0, 0) pages."""
        return Losses(len(self.tree.evicted), 0, 0)

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant (I2, I3), all recomputed from scratch."""
        self.tree.check([held.node for held in self.held.values()])
        for lease, held in self.held.items():
            above, below = held.protected // self.page, held.node.end()
            if above != below or not above <= self.full[lease] <= self.taken[lease]:
                raise RuntimeError(f"I3: request {lease} holds {below} pages of the tree, counted {above}")
        free, _, cached, _, _ = self.room(0)
        private = sum(n - self.held[lease].protected // self.page for lease, n in self.taken.items())
        if free * self.page != self.tokens.free or free + cached + private != self.capacity_pages:
            raise RuntimeError(f"I2: {free} free, {cached} cached and {private} held pages")


if TYPE_CHECKING:

    def _fulfils(store: ReferenceRadixStore) -> GpuStore:
        return store
