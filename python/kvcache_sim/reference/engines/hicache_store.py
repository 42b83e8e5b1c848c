"""SGLang's default tree with HiCache's host tier, as a timed machine's store.

Writes and loads are moves that the machine's channels carry. The tree decides when it is asked, as SGLang's
does: a loaded page is in the tree at once and computed with when it has come; a written one may not leave the
device before its copy is there (write_through), or who gets its room waits for the copy (write_back).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcache_sim.cache.store import NO_MOVE, LoadingStore, Losses, OffersComputed, Order, Room
from kvcache_sim.reference.engines.copy_orders import OrdersCopies
from kvcache_sim.reference.engines.leased_store import in_parts
from kvcache_sim.reference.engines.leases import EngineLease, EngineLeases
from kvcache_sim.reference.engines.page_store import PageStore
from kvcache_sim.reference.engines.unified_replay import LEAST_LOADED_TOKENS, Device, Held
from kvcache_sim.reference.engines.unified_tree import Node, UnifiedTree, worths
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.reference.store.refusals import HANDLES, in_order, numbered, refuse
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.tiers import COMPUTE, STAGING


@dataclass(frozen=True, slots=True)
class HiCacheSettings:
    """Strategy of eviction, tokens a page, pages on the device and on the host, when pages are written."""

    strategy: str
    page: int
    device_pages: int
    host_pages: int
    #: SGLang's name of it: write_through, write_through_selective or write_back.
    write_policy: str
    #: Pages of the storage below the host, 0 for none, and the fewest tokens that are brought from there.
    storage_pages: int = 0
    prefetch_threshold_tokens: int = 256
    #: Of the host's tokens those that prefetches under way may have asked for.
    prefetch_share: float = 0.5


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy between device and host: its pages, and the node whose path stays on the device until it ends.

    Under write_back SGLang waits for each write before it goes on, so nothing needs to be kept.
    """

    keys: tuple[Key, ...]
    is_load: bool
    kept: Node | None
    #: The node that was written, which ends with these pages.
    written: Node | None = None

    def path(self) -> list[Node]:
        """Return the nodes that are kept."""
        return [] if self.kept is None else self.kept.path()


class ReferenceHiCacheStore(OrdersCopies, PageStore):
    """Leases, room and records over ``UnifiedTree``, one lease a request; a block is a page.

    ``lengths``: prompt and total tokens by request. A request is admitted when its prompt and all of its
    answer would fit if everything went that may. Costs grow with the tree: every eviction searches it.
    """

    def __init__(
        self, keys: ReferenceKeys, settings: HiCacheSettings, lengths: tuple[list[int], list[int]]
    ) -> None:
        super().__init__()
        self.keys, self.settings, self.page = keys, settings, settings.page
        self.prompts, self.totals = lengths
        worth = worths(settings.page, 0, 0)[settings.strategy]
        self.tree = UnifiedTree(worth, settings.write_policy, settings.host_pages)
        self.device = Device(self.tree, settings.page, settings.device_pages * settings.page)
        self.leases = EngineLeases(len(keys.full))
        self.held: dict[int, Held] = {}
        self.full: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        #: Running requests whose prompt is still to be checked in whole.
        self._computing: set[int] = set()
        #: How many leading pages each request last asked for.
        self._limits: dict[int, int] = {}
        self._moves: dict[int, Copy] = {}
        self._orders: list[Order] = []
        #: Pages that are being loaded and written, by the move.
        self._arriving: dict[Key, int] = {}
        self._writing: dict[Key, int] = {}

    # -- what is there

    def _path(self, names: list[Key]) -> Iterator[tuple[Key, Node]]:
        """Yield the pages that are found on either tier, each with its node; nothing is touched."""
        node, walked = self.tree.root, 0
        while walked < len(names) and (child := node.children.get(names[walked])) is not None:
            for own, asked in zip(child.key, names[walked:], strict=False):
                if own != asked:
                    return
                yield own, child
            node, walked = child, walked + len(child.key)

    def _places(self, request: int, limit: int) -> list[tuple[int, int]]:
        """Return (tier, move writing it) of each page found; too little on the host alone is left there."""
        path = list(self._path(self._names(request, limit)))
        on_host = sum(not node.device for _, node in path)
        if on_host * self.page < LEAST_LOADED_TOKENS:
            path = path[: len(path) - on_host]
        return [
            (COMPUTE, self._arriving.get(key, NO_MOVE))
            if node.device
            else (STAGING, self._writing.get(key, NO_MOVE))
            for key, node in path
        ]

    def _found(self, request: int, limit: int) -> int:
        places = self._places(request, limit)
        return next((k for k, place in enumerate(places) if place != (COMPUTE, NO_MOVE)), len(places))

    @numbered
    def peek(self, request: int, limit: int) -> tuple[int, int]:
        """Return how many leading pages are found on both tiers, and are ready on the device."""
        self.leases.known_request(request)
        self._limits[request] = limit
        return len(self._places(request, limit)), self._found(request, limit)

    @numbered
    def match_prefix(self, request: int, limit: int) -> list[tuple[int, int, int, int]]:
        """Return the found run in parts: (tier, first page, past the last, move writing it)."""
        return in_parts(self._places(request, limit))

    # -- admission

    @numbered
    def protect(self, request: int, end: int, tier: int) -> int:
        """Return a hold of nothing: room and loads of a request are one decision of the tree."""
        return next(HANDLES)

    @numbered
    def unprotect(self, tier: int, hold: int) -> None:
        """End a ``protect``."""

    @numbered
    def reserve_many(self, wanted: list[tuple[int, int]], now_ns: int) -> list[int] | None:
        """Take pages for several leases, all or nothing; return the writes that must end before."""
        asked = self.leases.asked(wanted, self._found)
        losses, orders = self._losses(), len(self._orders)
        if len(asked) == 1 and not asked[0][0].is_admitted:
            got = self._admit(*asked[0])
        else:
            got = self._extend([(lease.request, pages) for lease, pages in asked])
        self._start_writes()
        self._note_losses(losses, now_ns)
        return [order[0] for order in self._orders[orders:]] if got else None

    def _admit(self, lease: EngineLease, pages: int) -> bool:
        request, page, device = lease.request, self.page, self.device
        names = self._names(request, min(self._limits[request], self.settings.device_pages))
        path = [node for _, node in self._path(names) if node.device]
        total = max(self.totals[request], (len(path) + pages) * page)
        loose = self._loose_pages() - sum(node.locks == 0 for node in path)
        if device.free + (loose + len(path)) * page < device.paged(total) + device.slack():
            return False
        whole = self._names(request, self.totals[request] // page)
        held = Held(whole, self.prompts[request], total, self.tree.root)
        node, found = device.look_up(held, names)
        on_device = held.protected
        on_host = device.load(held, node, found - on_device)
        own = pages * page - on_host
        device.demand(own + device.slack())
        device.free -= own
        assert device.free >= 0, "what is loose can go"
        self.held[request], self.full[request] = held, lease.hits
        self.taken[request] = on_device // page + pages
        self._computing.add(request)
        lease.is_admitted = True
        return True

    def _loose_pages(self) -> int:
        return sum(len(node.key) for node in self.tree.root.below() if node.device and node.locks == 0)

    @numbered
    def join(self, lease: int, to: int) -> None:
        """Count pages as found that another request is loading; the lease holds them already."""
        self.full[self.leases.admitted(lease).request] = to

    @numbered
    def load(self, lease: int, to: int, after: list[int]) -> int:
        """Send the lease's next pages up to ``to``, which its room was taken for; return the move."""
        request = self.leases.admitted(lease).request
        names = self._names(request, to)[self.full[request] :]
        move = self._start(Copy(tuple(names), True, None), (STAGING, COMPUTE, len(names)), after)
        self._arriving.update(dict.fromkeys(names, move))
        self.full[request] = to
        return move

    # -- what steps compute

    @numbered
    def commit(self, lease: int, to: int, ready: tuple[int, int] | None = None) -> None:
        """Check the computed pages of a prompt into the tree; note those of an answer.

        What the host evicts for writes of it goes when the pages were computed, at 0 where that is not told.
        """
        in_order(ready or (0, 0))
        request = self.leases.admitted(lease).request
        if to > self.taken[request]:
            raise refuse("more blocks than are reserved and free", "a reservation first")
        if to > self.full[request]:
            self.full[request], losses = to, self._losses()
            self._check_in_prompt(request)
            self._note_losses(losses, (ready or (0, 0))[1])

    def step_computed(self, leases: list[int], now_ns: int) -> None:
        """Check in prompts of which a step computed less than a page; a prompt counts once it is computed."""
        losses = self._losses()
        for lease in leases:
            self._check_in_prompt(self.leases.get(lease).request)
        self._note_losses(losses, now_ns)

    def _check_in_prompt(self, request: int) -> None:
        if request not in self._computing:
            return
        held, prompt = self.held[request], self.prompts[request] // self.page
        pages = min(self.full[request], prompt)
        # one that was preempted may have found pages of its answer
        if pages * self.page > held.protected or pages == prompt == held.protected // self.page:
            self._check_in(request, pages)
        if pages == prompt:
            self._computing.discard(request)

    @property
    def _room(self) -> Device:
        """The tokens around the tree on the device."""
        return self.device

    def _checkpoint(self, request: int, pages: int) -> None:
        """Check a request's first pages into the tree, and send what that writes."""
        self.device.checkpoint(self.held[request], pages * self.page)
        self._start_writes()

    def _let_go(self, request: int) -> int:
        """Unlock what a request has in the tree; return how many tokens that was."""
        self._computing.discard(request)
        held = self.held.pop(request)
        self.device.move_lock(held, self.tree.root)
        return held.protected

    @numbered
    def release(self, lease: int, now_ns: int) -> None:
        """Check everything computed into the tree and let go of it."""
        losses = self._losses()
        super().release(lease, now_ns)
        self._note_losses(losses, now_ns)

    # -- copies

    def _start(self, copy: Copy, order: tuple[int, int, int], after: list[int]) -> int:
        move = next(HANDLES)
        self._moves[move] = copy
        self._orders.append((move, *order, list(after)))
        return move

    def _start_writes(self) -> None:
        """Send the nodes that the tree has written; under write_through they are kept meanwhile."""
        copied, self.tree.copied = self.tree.copied, []
        waits = self.settings.write_policy == "write_back"
        for node, pages in copied:
            copy = Copy(tuple(pages), False, None if waits else node, node)
            move = self._start(copy, (COMPUTE, STAGING, len(pages)), [])
            self._writing.update(dict.fromkeys(pages, move))
            for above in copy.path():
                above.locks += 1

    @numbered
    def finish_move(self, move: int) -> None:
        """End a copy: what it wrote is ready, what it read may go."""
        copy = self._moves.pop(move)
        moving = self._arriving if copy.is_load else self._writing
        for key in copy.keys:
            if moving.get(key) == move:
                del moving[key]
        for above in copy.path():
            above.locks -= 1
        if copy.written is not None:
            self._written(copy.written, len(copy.keys))

    def _written(self, node: Node, pages: int) -> None:
        """Hear that the ``pages`` that end with a node are on the host."""

    # -- counts

    def _losses(self) -> tuple[int, int]:
        return self.tree.evicted_pages, self.tree.host_evicted

    def _note_losses(self, before: tuple[int, int], now_ns: int) -> None:
        for tier, (was, now) in enumerate(zip(before, self._losses(), strict=True)):
            self._note_evicted(now - was, now_ns, tier)

    @numbered
    def room(self, tier: int) -> Room:
        """Return how the pages of the device, or of the host, are used."""
        if tier != STAGING:
            return super().room(tier)
        on_host = [node for node in self.tree.root.below() if node.host]
        there = sum(len(node.key) for node in on_host)
        idle = sum(len(node.key) for node in on_host if node.locks == 0)
        writing = sum(key in self._writing for node in on_host for key in node.key)
        return Room(self.tree.host_free, 0, there - writing, writing, idle)

    def _gpu_room(self) -> Room:
        free, arriving = self.device.free // self.page, len(self._arriving)
        cached = sum(len(node.key) for node in self.tree.root.below() if node.device)
        active = self.settings.device_pages - free - cached
        return Room(free, active, cached - arriving, arriving, self._loose_pages())

    @numbered
    def losses(self, tier: int) -> Losses:
        """Return (evicted, 0, 0) pages; demoted ones left the device too."""
        return Losses(self.tree.host_evicted, 0, 0) if tier == STAGING else super().losses(tier)

    def _gpu_evicted(self) -> int:
        return self.tree.evicted_pages

    @numbered
    def duplicates(self, tier: int) -> int:
        """Return how many pages of the host are on the device too."""
        return sum(len(node.key) for node in self.tree.root.below() if node.device and node.host)

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant (I2, I3), recomputed from scratch."""
        nodes = list(self.tree.root.below())
        locks = dict.fromkeys(nodes, 0)
        kept = [held.lock.path() for held in self.held.values()]
        kept += [copy.path() for copy in self._moves.values()]
        for node in (node for path in kept for node in path):
            locks[node] += 1
        if any(node.locks != counted for node, counted in locks.items()):
            raise RuntimeError("I3: a node counts other locks than it has")
        if not all(node.device or node.host for node in nodes):
            raise RuntimeError("a node is on no tier")
        above = {child: node for node in nodes for child in node.children.values()}
        if any(node.device and node in above and not above[node].device for node in nodes):
            raise RuntimeError("a page on the device follows one that is not")
        private = sum(n - self.held[request].protected // self.page for request, n in self.taken.items())
        room = self.room(COMPUTE)
        if min(room) < 0 or room.active_blocks != private or private < 0:
            raise RuntimeError(f"I2: {room.active_blocks} pages are requests' own, {private} were given out")
        if min(self.room(STAGING)) < 0 or self.room(STAGING).capacity_blocks != self.settings.host_pages:
            raise RuntimeError(f"I2: {self.room(STAGING)} of {self.settings.host_pages} pages on the host")


if TYPE_CHECKING:

    def _fulfils(store: ReferenceHiCacheStore) -> tuple[LoadingStore, OffersComputed]:
        return store, store
