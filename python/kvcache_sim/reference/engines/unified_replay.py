"""Requests through the reference of SGLang's default tree, times ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvcache_sim.reference.causes.engine import MissCauses
from kvcache_sim.reference.engines.hicache_storage import Storage
from kvcache_sim.reference.engines.requests import Overlap, Requests
from kvcache_sim.reference.engines.unified_tree import Node, UnifiedTree, worths
from kvcache_sim.replay.block_keys import Key
from kvcache_sim.replay.request import REJECTED

#: Host hits of fewer tokens are computed again.
LEAST_LOADED_TOKENS = 10


@dataclass(slots=True)
class Held:
    """A running request: its pages, tokens of the prompt and in all, its lock and what is before it."""

    keys: list[Key]
    n: int
    total: int
    lock: Node
    protected: int = 0
    counted: int = 0


@dataclass(slots=True)
class Device:
    """The tree and the free tokens around it."""

    tree: UnifiedTree
    page: int
    free: int

    def paged(self, tokens: int) -> int:
        """Return tokens in whole pages, the last one filled up."""
        return -(-tokens // self.page) * self.page

    def slack(self) -> int:
        """Return what an allocation asks for beyond its tokens."""
        return self.page if self.page > 1 else 0

    def move_lock(self, held: Held, node: Node) -> None:
        """Lock the path of ``node`` and unlock the one before."""
        for above in node.path():
            above.locks += 1
        for above in held.lock.path():
            above.locks -= 1
        held.lock = node

    def look_up(self, held: Held, askable: list[Key]) -> tuple[Node, int]:
        """Hold what the device has; return the deepest node found and its tokens in all."""
        self.move_lock(held, self.tree.root)
        node = self.tree.match(askable)
        on_device = next((above for above in node.path() if above.device), self.tree.root)
        self.move_lock(held, on_device)
        held.protected = on_device.end() * self.page
        return node, node.end() * self.page

    def fits(self, held: Held) -> bool:
        """Return whether the request fits if all that may go went."""
        loose = sum(len(node.key) for node in self.tree.root.below() if node.device and node.locks == 0)
        need = self.paged(held.total) - held.protected + self.slack()
        return self.free + loose * self.page >= need

    def demand(self, tokens: int) -> None:
        """Evict until ``tokens`` are free, if need be."""
        if tokens > self.free:
            self.free += self.tree.evict(-(-(tokens - self.free) // self.page)) * self.page

    def prefetch(self, askable: list[Key], host_pages: int, threshold_tokens: int) -> int:
        """Bring what follows the known prefix from storage to the host, at once; return its pages."""
        anchor = self.tree.match(askable)
        storage = self.tree.storage
        if storage is None or host_pages * self.page < 2:  # half the host is a prefetch's limit
            return 0
        wanted = askable[anchor.end() :]
        pages = self.tree.take_for_prefetch(storage, anchor, wanted, -(-threshold_tokens // self.page))
        if pages:
            self.tree.insert_host(anchor, wanted[:pages])
        return pages

    def load(self, held: Held, node: Node, on_host: int) -> int:
        """Load what was found on the host alone; return its tokens, 0 where too little or without room."""
        if on_host < LEAST_LOADED_TOKENS:
            return 0
        before = held.lock
        self.move_lock(held, node)
        self.demand(on_host)
        if self.free < on_host:
            self.move_lock(held, before)
            return 0
        self.free -= on_host
        self.tree.load(node)
        held.protected += on_host
        return on_host

    def checkpoint(self, held: Held, tokens: int) -> None:
        """Insert the first ``tokens`` tokens, take duplicates back, lock the result."""
        pages, prompt = tokens // self.page, held.n // self.page
        if not pages:
            return
        before = (held.counted // self.page, held.protected // self.page)
        node, duplicates = self.tree.insert(held.keys[:pages], *before, priority=0)
        self.free += duplicates * self.page
        held.counted = max(held.counted, pages * self.page)
        if 0 < prompt < pages:
            self.tree.insert(held.keys[:prompt], prompt, prompt, priority=1)
        self.move_lock(held, node)
        held.protected = pages * self.page

    def compute(self, held: Held) -> None:
        """Prefill the prompt, check it in, and decode the rest."""
        self.demand(held.n - held.protected + self.slack())
        self.free -= self.paged(held.n) - held.protected
        self.checkpoint(held, held.n)
        for position in range(held.n, held.total):
            self.demand(self.page)
            if position % self.page == 0:
                self.free -= self.page

    def finish(self, held: Held) -> None:
        """Insert everything, give back the rest of the last page, unlock."""
        self.checkpoint(held, held.total)
        self.free += self.paged(held.total) - held.protected
        self.move_lock(held, self.tree.root)


def replay_unified_reference(
    requests: Requests,
    strategy: tuple[str, int, int],
    capacity_tokens: int,
    write_policy: str,
    host_pages: int,
    storage: tuple[int | None, int] | None = None,
) -> dict[str, Any]:
    """Replay every request and return what ``_core.replay_sglang_unified`` returns, keys as the trace's."""
    name, latency_tokens, next_prompt = strategy
    page = requests.block_size
    tree = UnifiedTree(worths(page, latency_tokens, next_prompt)[name], write_policy, host_pages)
    if storage is not None:
        tree.storage = Storage(storage[0])
    device, overlap = Device(tree, page, capacity_tokens), Overlap(requests.window)
    causes, running = MissCauses(page), dict[int, Held]()
    hits, loads, prefetched, forced = list[int](), list[int](), list[int](), 0
    for request, n in enumerate(requests.input_tokens):
        gone = len(tree.gone)
        for oldest in overlap.before_start():
            device.finish(running.pop(oldest))
        whole, askable = requests.whole(request), requests.keys.keys(request, requests.limit(request))
        held = Held(whole, n, requests.total_tokens[request], tree.root)
        prefetched.append(0)
        if storage is not None and device.paged(held.total) + device.slack() <= capacity_tokens:
            prefetched[-1] = device.prefetch(askable, host_pages, storage[1]) * page
        node, found = device.look_up(held, askable)
        ended = -1
        while ended and not device.fits(held) and overlap.running:
            ended = 0
            while not device.fits(held) and overlap.running:
                device.finish(running.pop(overlap.running.popleft()))
                ended += 1
            forced += ended
            if write_policy and device.fits(held):
                node, found = device.look_up(held, askable)
        if not device.fits(held):
            device.move_lock(held, tree.root)
            causes.count(n, askable, 0, lambda key: False)
            causes.reject()
            causes.learn(whole)
            causes.evict(request, tree.gone[gone:])
            hits.append(REJECTED)
            loads.append(0)
            continue
        on_device = held.protected
        loaded = device.load(held, node, found - on_device)
        causes.evict(request, tree.gone[gone:])
        gone = len(tree.gone)
        here = set(askable[: found // page])
        if tree.storage is not None:
            here.update(key for key in askable if key in tree.storage.pages)
        causes.count(n, askable, (on_device + loaded) // page, here.__contains__)
        causes.learn(whole)
        device.compute(held)
        causes.evict(request, tree.gone[gone:])
        hits.append(on_device)
        loads.append(loaded)
        running[request] = held
        for done in overlap.start(request):
            device.finish(running.pop(done))
        causes.evict(request, tree.gone[gone:])
    while overlap.running:
        device.finish(running.pop(overlap.running.popleft()))
    on_device_nodes = [node for node in tree.root.below() if node.device]
    on_host_nodes = [node for node in tree.root.below() if node.host]
    leaves = tree.leaves()
    return {
        "hits": hits,
        "loaded": loads,
        "prefetched": prefetched,
        "forced": forced,
        "evicted_pages": tree.evicted_pages,
        "evicted_leaves": tree.evicted_leaves,
        "device_pages": sum(len(node.key) for node in on_device_nodes),
        "device_nodes": len(on_device_nodes),
        "free_tokens": device.free,
        "written_pages": tree.written,
        "host_evicted_pages": tree.host_evicted,
        "host_evicted_leaves": tree.host_evicted_leaves,
        "host_pages": sum(len(node.key) for node in on_host_nodes),
        "host_nodes": len(on_host_nodes),
        "host_free_pages": tree.host_free,
        "storage_pages": 0 if tree.storage is None else len(tree.storage.pages),
        "storage_written_pages": 0 if tree.storage is None else tree.storage.written,
        "storage_evicted_pages": 0 if tree.storage is None else tree.storage.evicted,
        "leaf_keys": [leaf.key[-1] for leaf in leaves],
        "leaf_ends": [leaf.end() for leaf in leaves],
        "miss_tokens": causes.tokens,
        "evicted_misses": causes.evicted_misses,
    }
