"""HiCache's store above a storage (L3): host pages are written there, what waits comes from there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcache_sim.cache.store import LoadingStore, Losses, OffersComputed, PrefetchingStore, Room
from kvcache_sim.reference.engines.hicache_storage import Storage
from kvcache_sim.reference.engines.hicache_store import Copy, HiCacheSettings, ReferenceHiCacheStore
from kvcache_sim.reference.engines.unified_tree import Node
from kvcache_sim.reference.store import ReferenceKeys
from kvcache_sim.reference.store.refusals import HANDLES, numbered
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.tiers import COMPUTE, STAGING

#: The tier of the storage.
DISK = STAGING + 1
#: Pages that one read brings (SGLang's ``STORAGE_BATCH_SIZE``); a prefetch ends between two.
BATCH_PAGES = 128


@dataclass(slots=True)
class _Fetch:
    """A prefetch: the node that its pages follow, how many were asked for, and those that come."""

    request: int
    anchor: Node
    anchor_pages: int
    asked_pages: int
    keys: list[Key]
    done: int = 0
    is_stopped: bool = False


@dataclass(slots=True)
class _Backup:
    """Pages on their way to the storage, the nodes that keep them, and how many pages each has of them."""

    keys: list[Key]
    nodes: list[tuple[Node, int]]
    done_ns: int = 0


def _fragments(node: Node, pages: int) -> Iterator[Node]:
    """Yield the nodes that now have the ``pages`` that end with a node: splits have put some above it."""
    while pages > 0:
        yield node
        pages -= len(node.key)
        assert node.parent is not None
        node = node.parent


class StoredHiCacheStore(ReferenceHiCacheStore):
    """``ReferenceHiCacheStore`` above a storage. A page is in the storage when its write has ended.

    Keys that it has already are not written again. Under write_through a page stays on the host until then. A
    request that comes has what follows its known prefix brought up, batch by batch; once that ends, or is
    ended, its pages are the tree's.
    """

    def __init__(
        self, keys: ReferenceKeys, settings: HiCacheSettings, lengths: tuple[list[int], list[int]]
    ) -> None:
        super().__init__(keys, settings, lengths)
        self.storage = Storage(settings.storage_pages)
        self._fetches: dict[int, _Fetch] = {}
        self._reads: dict[int, _Fetch] = {}
        self._backups: dict[int, _Backup] = {}
        #: Pages of the host that prefetches under way will fill, and those that they asked for.
        self._reserved = self._asked = 0
        self.prefetched_blocks = 0

    # -- to the storage

    def _start(self, copy: Copy, order: tuple[int, int, int], after: list[int]) -> int:
        move = super()._start(copy, order, after)
        if copy.written is not None and self.settings.write_policy == "write_back":
            self._back_up(list(copy.keys), [], [move])
        return move

    def _written(self, node: Node, pages: int) -> None:
        if self.settings.write_policy != "write_back":
            nodes = list(_fragments(node, pages))
            self._back_up([key for part in reversed(nodes) for key in part.key], nodes, [])

    def _back_up(self, keys: list[Key], nodes: list[Node], after: list[int]) -> None:
        """Write pages to the storage; the nodes that have them stay on the host meanwhile."""
        new = sum(key not in self.storage.pages for key in keys)
        if not new and not self._backups:
            self.storage.read(keys)
            return
        if not new:  # they become recent after what is on its way
            next(reversed(self._backups.values())).keys += keys
            return
        move = next(HANDLES)
        self._backups[move] = _Backup(keys, [(part, len(part.key)) for part in nodes])
        self._orders.append((move, STAGING, DISK, new, after))
        for part in nodes:
            part.host_locks += 1

    def set_times(self, move: int, first_layer_ns: int, ready_ns: int) -> None:
        """Hear when a copy will be done."""
        if move in self._backups:
            self._backups[move].done_ns = ready_ns

    # -- from the storage

    @numbered
    def start_prefetch(self, request: int, limit: int, now_ns: int) -> int:
        """Bring up what follows the known part of the first ``limit`` pages; return how many were asked for.

        0 where nothing comes: too little is asked for or found, the prefix ends where the host has no copy,
        or prefetches under way have asked for the share of the host that is theirs.
        """
        losses, tree, settings = self._losses(), self.tree, self.settings
        names = self._names(request, limit)
        anchor = tree.match(names)
        wanted = names[anchor.end() :]
        share = int(settings.prefetch_share * settings.host_pages * self.page)
        if self._asked * self.page >= share:
            return 0
        least = -(-settings.prefetch_threshold_tokens // self.page)
        pages = tree.take_for_prefetch(self.storage, anchor, wanted, least)
        self._note_losses(losses, now_ns)
        if not pages:
            return 0
        anchor.host_locks += anchor is not tree.root
        fetch = _Fetch(request, anchor, len(anchor.key), len(wanted), wanted[:pages])
        self._fetches[request] = fetch
        self._reserved += pages
        self._asked += len(wanted)
        self._read_on(fetch)
        return len(wanted)

    def _read_on(self, fetch: _Fetch) -> None:
        move = next(HANDLES)
        pages = min(BATCH_PAGES, len(fetch.keys) - fetch.done)
        self._reads[move] = fetch
        self._orders.append((move, DISK, STAGING, pages, []))

    @numbered
    def is_prefetching(self, request: int) -> bool:
        """Return whether pages of a request are still to come from the storage."""
        return request in self._fetches

    @numbered
    def stop_prefetch(self, request: int) -> None:
        """End a request's prefetch with the batches that have come."""
        fetch = self._fetches[request]
        fetch.is_stopped = True
        self._end(fetch)

    def _end(self, fetch: _Fetch) -> None:
        """Make what has come the tree's."""
        del self._fetches[fetch.request]
        self._asked -= fetch.asked_pages
        self._reserved -= fetch.done
        if fetch.done:
            spare = self.tree.insert_host(fetch.anchor, fetch.keys[: fetch.done])
            self.prefetched_blocks += fetch.done - spare
        for part in _fragments(fetch.anchor, fetch.anchor_pages):
            part.host_locks -= 1

    def _came(self, fetch: _Fetch) -> None:
        if fetch.is_stopped:  # the batch that was under way is not used
            left = len(fetch.keys) - fetch.done
            self._reserved -= left
            self.tree.host_free += left
            return
        fetch.done = min(fetch.done + BATCH_PAGES, len(fetch.keys))
        if fetch.done == len(fetch.keys):
            self._end(fetch)
        else:
            self._read_on(fetch)

    @numbered
    def finish_move(self, move: int) -> None:
        """End a copy: what it wrote is ready, what it read may go."""
        if move in self._reads:
            self._came(self._reads.pop(move))
        elif move in self._backups:
            backup = self._backups.pop(move)
            self._note_evicted(len(self.storage.write(backup.keys)), backup.done_ns, DISK)
            for node, pages in backup.nodes:
                for part in _fragments(node, pages):
                    part.host_locks -= 1
        else:
            super().finish_move(move)

    # -- counts

    @numbered
    def room(self, tier: int) -> Room:
        """Return how the pages of a tier are used."""
        if tier == DISK:
            there = len(self.storage.pages)
            return Room(self.settings.storage_pages - there, 0, there, 0, there)
        room = super().room(tier)
        return room if tier == COMPUTE else room._replace(in_flight_blocks=room[3] + self._reserved)

    @numbered
    def losses(self, tier: int) -> Losses:
        """Return (evicted, 0, 0) pages."""
        return Losses(self.storage.evicted, 0, 0) if tier == DISK else super().losses(tier)

    @numbered
    def duplicates(self, tier: int) -> int:
        """Return how many pages of a tier a faster one has too."""
        if tier != DISK:
            return super().duplicates(tier)
        return sum(key in self.storage.pages for node in self.tree.root.below() for key in node.key)

    def check(self) -> None:
        """Raise RuntimeError naming the first violated invariant, recomputed from scratch."""
        super().check()
        locks = dict.fromkeys(self.tree.root.below(), 0)
        held = [(fetch.anchor, fetch.anchor_pages) for fetch in self._fetches.values()]
        held += [node for backup in self._backups.values() for node in backup.nodes]
        for node, pages in held:
            for part in _fragments(node, pages):
                locks[part] += 1
        if any(node.host_locks != counted for node, counted in locks.items()):
            raise RuntimeError("I3: a node counts other host locks than it has")
        if any(node.host_locks and not node.host for node in locks):
            raise RuntimeError("I3: a copy on the host went while it was needed")
        coming = list(self._fetches.values())
        stopped = [fetch for fetch in self._reads.values() if fetch.is_stopped]
        reserved = sum(len(f.keys) for f in coming) + sum(len(f.keys) - f.done for f in stopped)
        if (self._reserved, self._asked) != (reserved, sum(f.asked_pages for f in coming)):
            raise RuntimeError(f"I2: {self._reserved} pages are reserved for prefetches, {reserved} to come")
        if len(self.storage.pages) > self.settings.storage_pages:
            raise RuntimeError("I2: more pages in the storage than it has room for")


if TYPE_CHECKING:

    def _fulfils(store: StoredHiCacheStore) -> tuple[LoadingStore, OffersComputed, PrefetchingStore]:
        return store, store, store
