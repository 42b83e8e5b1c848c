"""SGLang's radix tree as a machine's store, in plain Python: the reference of the native ``RadixStore``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.cache.store import GpuStore, Room
from kvcache_sim.reference.engines.in_tokens import TreeInTokens
from kvcache_sim.reference.engines.leases import EngineLease, EngineLeases
from kvcache_sim.reference.engines.sglang_replay import Held, TokenRoom
from kvcache_sim.reference.engines.sglang_tree import SglangTree
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.reference.store.refusals import in_order, numbered, refuse
from kvcache_sim.replay.block_keys import Key


class ReferenceRadixStore(TreeInTokens):
    """Leases, room and records over ``SglangTree``, one lease a request; a block is a page.

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
        _check(len(keys.full), page, lengths)
        self.keys = keys
        self.page = page
        self.capacity_pages = capacity_pages
        self.prompts, self.totals = lengths
        self.tree = SglangTree(strategy)
        self.tokens = TokenRoom(self.tree, page, capacity_pages * page)
        self.leases = EngineLeases(len(keys.full))
        #: By running request: leading pages found or computed, and what it holds.
        self.full: dict[int, int] = {}
        self.held: dict[int, Held] = {}
        #: Pages that each running request has taken or found.
        self.taken: dict[int, int] = {}

    def _found(self, request: int, limit: int) -> int:
        return self.tree.peek(self._names(request, min(limit, self.capacity_pages)))

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Take pages for several leases, all or nothing."""
        asked = self.leases.asked(wanted, self._found)
        before = len(self.tree.evicted)
        if len(asked) == 1 and not asked[0][0].is_admitted:
            got = self._admit(*asked[0])
        else:
            got = self._extend([(lease.request, pages) for lease, pages in asked])
        self._note_evicted(len(self.tree.evicted) - before, now_ns)
        return [] if got else None

    def _admit(self, lease: EngineLease, pages: int) -> bool:
        request, hits = lease.request, lease.hits
        asked = hits + pages
        total = max(self.tokens.paged(self.totals[request]), asked * self.page)
        found = self._names(request, hits)
        room = self.tokens.free + (self.tree.evictable_pages() - self._unlocked(found)) * self.page
        if room + hits * self.page < total + self.tokens.slack():
            return False
        node, _ = self.tree.match(found)
        self.tree.lock(node, 1)
        self.tokens.demand(pages * self.page + self.tokens.slack())
        self.tokens.free -= pages * self.page
        prompt_pages = self.prompts[request] // self.page
        self.held[request] = Held([], prompt_pages, self.totals[request], node, hits * self.page)
        self.taken[request], self.full[request] = asked, hits
        lease.is_admitted = True
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

    @numbered
    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Check the computed pages of a prompt into the tree; note those of an answer."""
        in_order(ready or (0, 0))
        request = self.leases.admitted(lease).request
        if to > self.taken[request]:
            raise refuse("more blocks than are reserved and free", "a reservation first")
        if to <= self.full[request]:
            return
        self.full[request] = to
        held = self.held[request]
        pages = min(to, held.prompt_pages)
        if pages * self.page > held.protected:
            self._check_in(request, pages)

    def _gpu_room(self) -> Room:
        """Return (free, held and not in the tree, in the tree, 0, of these evictable) pages."""
        free, cached = self.tokens.free // self.page, sum(len(node.key) for node in self.tree.nodes())
        return Room(free, self.capacity_pages - free - cached, cached, 0, self.tree.evictable_pages())

    def _gpu_evicted(self) -> int:
        return len(self.tree.evicted)

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant (I2, I3), all recomputed from scratch."""
        self.tree.check([held.node for held in self.held.values()])
        for request, held in self.held.items():
            above, below = held.protected // self.page, held.node.end()
            if above != below or not above <= self.full[request] <= self.taken[request]:
                raise RuntimeError(f"I3: request {request} holds {below} pages of the tree, counted {above}")
        free, _, cached, _, _ = self.room(0)
        private = sum(n - self.held[request].protected // self.page for request, n in self.taken.items())
        if free * self.page != self.tokens.free or free + cached + private != self.capacity_pages:
            raise RuntimeError(f"I2: {free} free, {cached} cached and {private} held pages")


def _check(requests: int, page: int, lengths: tuple[list[int], list[int]]) -> None:
    """Refuse an empty page and lengths that are not the requests'."""
    both = zip(*lengths, strict=False)
    if [len(each) for each in lengths] != [requests] * 2 or not all(p <= w < 1 << 62 for p, w in both):
        expected = f"{requests} prompts and wholes, a prompt at most its whole, below 2^62 tokens"
        raise refuse("not the lengths of the requests", expected)
    if page < 1:
        raise refuse("a page of no tokens", "1 token or more")


if TYPE_CHECKING:

    def _fulfils(store: ReferenceRadixStore) -> GpuStore:
        return store
