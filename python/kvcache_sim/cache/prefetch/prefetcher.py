"""Prefetching: bringing blocks up to where they are loaded from before they are asked for (semantics 4)."""

from __future__ import annotations

from kvcache_sim.cache.moves import Mover
from kvcache_sim.cache.prefetch import PREFETCH
from kvcache_sim.cache.prefetch.policy import PrefetchPolicy
from kvcache_sim.cache.remote import RemoteReads
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.cache.staging import is_staged, stage_up
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.engine import TRANSFER
from kvcache_sim.tiers import STAGING


class Prefetcher:
    """Copies what a request would read from further down, or from another machine, to where it is staged.

    Its policy says of which request, when, and how much. What is on its way never takes more than
    ``prefetch_share`` of the tier. Under the fetch policies ``wait`` and ``timeout`` the request stays in the
    queue until its blocks have come.
    """

    def __init__(
        self, mover: Mover, store: TieredStore, settings: MovementSettings, remote: RemoteReads | None
    ) -> None:
        self.mover = mover
        self.store = store
        self.settings = settings
        self.policy: PrefetchPolicy = PREFETCH.make(settings.prefetch)
        self.lead_ns = settings.prefetch_lead_ns
        self.remote = remote
        self.room = int(store.room(STAGING).capacity_blocks * settings.prefetch_share)
        self.on_its_way = 0
        self.blocks = 0
        #: Moves that a request may have to wait for, and until when.
        self._pending: dict[int, tuple[set[int], int]] = {}

    def counted(self, blocks: int) -> None:
        """Hear how many blocks have been brought up so far, where the core does so."""
        self.blocks = blocks

    def start(self, request: int, limit: int, now_ns: int) -> None:
        """Bring up what lies further down of the first ``limit`` blocks."""
        store = self.store
        parts = store.match_prefix(request, limit)
        found = parts[-1][2] if parts else 0
        moves: set[int] = set()
        for tier, start, end, by in parts:
            if tier > STAGING and by == NO_MOVE:
                end = min(end, start + self.room - self.on_its_way)
                copies = stage_up(store, request, (start, end), (tier, by), now_ns) if end > start else []
                if not is_staged(copies):
                    break
                self._count(copies[-1][1], end - start, moves)
        else:
            run = self.remote.longest(request, found, limit) if self.remote and found < limit else None
            for tier, start, end, by in run.parts if run else ():
                assert self.remote is not None
                assert run is not None
                end = min(end, start + self.room - self.on_its_way)
                part = (tier, start, end, by)
                move = self.remote.fetch(request, run.owner, part, now_ns) if end > start else None
                if move is None:
                    break
                self._count(move, end - start, moves)
        self.mover.issue()
        if moves and self.settings.fetch in ("wait", "timeout"):
            self._hold_back(request, moves, now_ns)

    def _count(self, move: int, blocks: int, moves: set[int]) -> None:
        self.on_its_way += blocks
        self.blocks += blocks
        moves.add(move)
        self.mover.when_done[move] = lambda: self._came(move, blocks, moves)

    def _came(self, move: int, blocks: int, moves: set[int]) -> None:
        self.on_its_way -= blocks
        moves.discard(move)

    def _hold_back(self, request: int, moves: set[int], now_ns: int) -> None:
        until = 1 << 62
        if self.settings.fetch == "timeout":
            until = now_ns + self.settings.fetch_timeout_ns
            engine = self.mover.engine
            engine.schedule(until, TRANSFER, self.mover.machine, lambda _: self.mover.moved())
        self._pending[request] = (moves, until)

    def holds_back(self, request: int, now_ns: int) -> bool:
        """Return whether a request still waits for its prefetched blocks."""
        if request not in self._pending:
            return False
        moves, until = self._pending[request]
        if now_ns < until and moves:
            return True
        del self._pending[request]
        return False
