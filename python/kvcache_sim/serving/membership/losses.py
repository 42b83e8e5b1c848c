"""Losses while the machines stay: copies on a tier or in a shared pool, a router's index, emptied caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.base.tiers import COMPUTE
from kvcache_sim.cache.pool import PoolNode
from kvcache_sim.cache.store import ALL_BLOCKS, BlockRange, GpuStore
from kvcache_sim.cache.store_kinds import store_kind
from kvcache_sim.cache.tree_store import NO_COPY, MarkingStore
from kvcache_sim.engine import MEMBERSHIP, NO_MACHINE, Engine, Event
from kvcache_sim.serving.membership.plan import Flush, MembershipPlan, PoolLoss, TierLoss
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.serving.router.contract import Router
from kvcache_sim.serving.sequence import Arrival


def empty_caches(replica: NativeReplica, tree: MarkingStore | None, requests: int) -> int:
    """Drop every copy without a lease on every tier; return the number of dropped blocks.

    Blocks that running requests hold or that are being read or written stay. An engine's own cache is emptied
    only while no request waits, runs or is handed over, as in vLLM's ``reset_prefix_cache`` and SGLang's
    ``flush_cache``; its blocks count as evicted. Cost: one walk per request of the trace, or one call.
    """
    replica.catch_up(replica.engine.now_ns)
    if tree is None:
        if any(replica.counts()[:3]) or (replica.hands_over and replica.store.occupancy(COMPUTE).held_blocks):
            return 0
        kept = int(store_kind(replica.cache).keeps_page_free and replica.cache.block_size_tokens > 1)
        return _evict_all(replica.store, kept, replica.engine.now_ns)
    gone = 0
    for request in range(requests):
        parts = tree.copies(request, ALL_BLOCKS)
        if parts:
            for tier in range(replica.tiers - 1, COMPUTE - 1, -1):
                gone += tree.remove(request, BlockRange(0, parts[-1][0]), tier)
    return gone


def _evict_all(store: GpuStore, kept_free_blocks: int, now_ns: int) -> int:
    """Evict every block that nothing uses, and release the blocks."""
    occupancy = store.occupancy(COMPUTE)
    lease = store.acquire(0, 0)
    wanted = occupancy.free_blocks + occupancy.cached_blocks - kept_free_blocks
    taken = store.reserve(lease, wanted, now_ns)
    assert taken is not None, "unused blocks can be allocated"
    store.release(lease, now_ns)
    return occupancy.cached_blocks


#: A loss; an int is the time (ns) at which the router's index is lost.
_Loss = TierLoss | Flush | PoolLoss | int


class Losses:
    """Drops copies and the router's index at their times, until every request is finished.

    Cost: one event per loss.
    """

    def __init__(
        self,
        plan: MembershipPlan,
        replicas: Sequence[NativeReplica],
        trees: Sequence[MarkingStore | None],
        engine: Engine,
        done: Callable[[], bool],
        requests: int,
    ) -> None:
        self._replicas, self._trees, self._requests = replicas, trees, requests
        self._engine, self._done = engine, done
        losses: list[_Loss] = [
            *plan.tier_losses,
            *plan.index_losses_ns,
            *plan.flushes,
            *plan.pool_losses,
        ]
        self._losses = sorted(losses, key=lambda loss: loss if isinstance(loss, int) else loss.at_ns)
        self._next = 0
        self._event: Event | None = None
        self._forget: Callable[[], None] = _nothing
        self._pool: PoolNode | None = None
        self.counts = dict.fromkeys(("tiers_lost", "blocks_lost", "index_lost", "flushes"), 0)

    def around(self, make: Callable[[], Router], forget: Callable[[], None]) -> Router:
        """Return a router that is rebuilt when its index is lost; ``forget`` empties the index."""
        router = ForgettingRouter(make)

        def begin_anew() -> None:
            forget()
            router.forget()

        self._forget = begin_anew
        return router

    def of_pool(self, pool: PoolNode) -> None:
        """Set the shared pool whose losses the plan has."""
        self._pool = pool

    def start(self) -> None:
        """Queue the first loss."""
        if self._next < len(self._losses):
            loss = self._losses[self._next]
            at_ns = loss if isinstance(loss, int) else loss.at_ns
            self._event = self._engine.schedule(at_ns, MEMBERSHIP, NO_MACHINE, self._happens, loss)

    def closed(self, _: int) -> None:
        """Cancel the next loss once every request is finished."""
        if self._done() and self._event is not None:
            self._engine.cancel(self._event)
            self._event = None

    def _happens(self, loss: _Loss) -> None:
        self._next, self._event = self._next + 1, None
        if isinstance(loss, int):
            self._forget()
            self.counts["index_lost"] += 1
        elif isinstance(loss, PoolLoss):
            assert self._pool is not None, "a plan that loses a pool has one"
            self.counts["blocks_lost"] += self._pool.lose(self._requests)
        elif isinstance(loss, Flush):
            self.counts["flushes"] += 1
            for machine, replica in enumerate(self._replicas):
                if loss.machine in (None, machine):
                    gone = empty_caches(replica, self._trees[machine], self._requests)
                    self.counts["blocks_lost"] += gone
        else:
            tree = self._trees[loss.machine]
            assert tree is not None, "a machine with a lower tier keeps a tree"
            self.counts["tiers_lost"] += 1
            self.counts["blocks_lost"] += lose_tier(loss, self._replicas[loss.machine], tree, self._requests)
        self.start()


def _nothing() -> None:
    """Do nothing: the router has no index."""


def lose_tier(loss: TierLoss, replica: NativeReplica, tree: MarkingStore, requests: int) -> int:
    """Drop a tier's copies on one machine; return the number of dropped blocks.

    Copies that are being read or written stay, with the blocks before them in the prefix. Copies on lower
    tiers whose parent block had its only copy on this tier are dropped too: no lookup reaches them. Cost: two
    calls, and one walk per request of the trace.
    """
    replica.catch_up(replica.engine.now_ns)
    gone = 0
    for request in range(requests):
        parts = tree.copies(request, ALL_BLOCKS)
        if not parts:
            continue
        end = parts[-1][0]
        alone = _first_alone(parts, loss.tier)
        for below in range(replica.tiers - 1, loss.tier, -1):
            if alone is not None:
                gone += tree.remove(request, BlockRange(alone, end), below)
        gone += tree.remove(request, BlockRange(0, end), loss.tier)
    return gone


def _first_alone(parts: Sequence[tuple[int, list[int]]], tier: int) -> int | None:
    """Return the first block with a copy on a tier and none above it; None if there is no such block."""
    start = 0
    for end, moves in parts:
        if moves[tier] != NO_COPY and all(move == NO_COPY for move in moves[:tier]):
            return start
        start = end
    return None


class ForgettingRouter:
    """A router that is rebuilt when its index is lost."""

    def __init__(self, make: Callable[[], Router]) -> None:
        self._make = make
        self._router = make()

    def choose(self, sequence: Arrival) -> int:
        """Return the choice of the current router."""
        return self._router.choose(sequence)

    def forget(self) -> None:
        """Replace the router by a new one."""
        self._router = self._make()
