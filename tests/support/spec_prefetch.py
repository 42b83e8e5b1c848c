"""The specification with prefetches, which no seed asks for: a model of the core's rules.

What a request would read from below the CPU, or from another machine, comes up while it queues (``queued``),
or
a while before a paused session's next turn (``session``), within a share of the CPU. Under the fetch policies
``wait`` and ``timeout`` the request stays in the queue until it has come; ``timeout`` and ``best-effort``
reuse
what is ready on GPU or CPU (HiCache).
"""

from typing import Any

from kvcache_sim.base.tiers import STAGING
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.engine import ARRIVAL, TRANSFER
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings
from kvcache_sim.simulation.spec_simulation import Seen
from kvcache_sim.spec.admission import Admitter
from kvcache_sim.spec.block_store import Part
from kvcache_sim.spec.blocks import NO_MOVE
from kvcache_sim.spec.movement_policies import Plan, fetch_always
from kvcache_sim.spec.mover import Mover, is_staged, stage_up
from kvcache_sim.spec.remote import RemoteReads
from kvcache_sim.spec.request import SequenceState
from kvcache_sim.spec.scheduler import Scheduler
from kvcache_sim.spec.simulator import Machine, Simulator
from kvcache_sim.workload.trace import NO_REQUEST, OPEN_LOOP

from support.product.traces import continuations

#: Number of queued requests considered, which bounds the cost.
WINDOW = 256
#: Later than any time.
_FOREVER = 1 << 62


def has_prefetch(settings: ClusterSettings) -> bool:
    """Return True if settings need this model."""
    return settings.movement.prefetch != "none" or settings.movement.fetch in WAITING


def fetch_best_effort(plan: Plan) -> int:
    """Reuse the leading blocks that are ready on GPU or CPU (HiCache's best effort)."""
    reused = plan.ready
    for part in plan.parts:
        if part.tier > STAGING or part.by != NO_MOVE:
            break
        reused = max(reused, part.end)
    return reused


#: The fetch policies of this model.
WAITING = {"wait": fetch_always, "best-effort": fetch_best_effort, "timeout": fetch_best_effort}


class PrefetchAdmitter(Admitter):
    """Admissions with these fetch policies."""

    def _reused(self, plan: Plan) -> int:
        policy = WAITING.get(self.movement.fetch)
        return super()._reused(plan) if policy is None else policy(plan)


class Prefetcher:
    """Copies to the CPU the blocks that a request would read from a lower tier, or from another machine."""

    def __init__(self, mover: Mover, settings: MovementSettings, remote: RemoteReads | None) -> None:
        self.mover = mover
        self.settings = settings
        self.remote = remote
        self._headroom = int(mover.store.occupancy(STAGING).capacity_blocks * settings.prefetch_share)
        self._in_transit = 0
        #: Blocks brought up so far.
        self.blocks = 0
        #: By request the moves that it waits for, and until when.
        self._pending: dict[int, tuple[set[int], int]] = {}

    def start(self, request: int, limit: int, now_ns: int) -> None:
        """Copy up those of the first ``limit`` blocks that are in lower tiers."""
        store = self.mover.store
        parts = [Part(*part) for part in store.match_prefix(request, limit)]
        found = parts[-1].end if parts else 0
        moves: set[int] = set()
        # what the prompt has below the GPU makes no space for the rest of it
        held = [store.lend(request, part.end, part.tier) for part in parts if part.tier >= STAGING]
        lower = [part for part in parts if part.tier > STAGING and part.by == NO_MOVE]
        if all(self._bring_up(request, part, now_ns, moves) for part in lower):
            run = self.remote.longest(request, found, limit) if self.remote and found < limit else []
            for part in run:
                end = self._bounded(part)
                assert self.remote is not None
                cut = part._replace(end=end)
                move = self.remote.fetch(request, cut, now_ns) if end > part.start else None
                if move is None:
                    break
                self._count(move, end - part.start, moves)
        for hold in held:
            store.finish_move(hold)
        self.mover.issue()
        if moves and self.settings.fetch in ("wait", "timeout"):
            self._hold_back(request, moves, now_ns)

    def _bring_up(self, request: int, part: Part, now_ns: int, moves: set[int]) -> bool:
        end = self._bounded(part)
        store, bounded = self.mover.store, part._replace(end=end)
        copies = stage_up(store, request, bounded, now_ns) if end > part.start else []
        if is_staged(copies):
            self._count(copies[-1].move, end - part.start, moves)
        return is_staged(copies)

    def _bounded(self, part: Part) -> int:
        return min(part.end, part.start + self._headroom - self._in_transit)

    def _count(self, move: int, blocks: int, moves: set[int]) -> None:
        self._in_transit += blocks
        self.blocks += blocks
        moves.add(move)
        self.mover.on_complete[move] = lambda: self._came(move, blocks, moves)

    def _came(self, move: int, blocks: int, moves: set[int]) -> None:
        self._in_transit -= blocks
        moves.discard(move)

    def _hold_back(self, request: int, moves: set[int], now_ns: int) -> None:
        until = _FOREVER
        if self.settings.fetch == "timeout":
            until = now_ns + self.settings.fetch_timeout_ns
            mover = self.mover
            mover.engine.schedule(until, TRANSFER, mover.machine, lambda _: mover.moved())
        self._pending[request] = moves, until

    def holds_back(self, request: int, now_ns: int) -> bool:
        """Return whether a waiting request still stays in the queue for its blocks."""
        if request not in self._pending:
            return False
        moves, until = self._pending[request]
        if now_ns < until and moves:
            return True
        del self._pending[request]
        return False


class PrefetchScheduler(Scheduler):
    """A scheduler whose requests may stay in the queue for their prefetch."""

    prefetcher: Prefetcher | None = None

    def enqueue(self, s: SequenceState) -> None:
        if self.movement.prefetch == "queued":
            self.prefetch(s.request, s.prompt_num_tokens)
        super().enqueue(s)

    def prefetch(self, request: int, tokens: int) -> None:
        """Bring a request's blocks up to the CPU."""
        limit = self.cache.matchable_blocks(tokens)
        if self.prefetcher is not None and limit:
            self.prefetcher.start(request, limit, self.mover.engine.now_ns)

    def _candidates(self, now: int) -> list[SequenceState]:
        prefetcher = self.prefetcher
        if prefetcher is None or self.movement.prefetch != "queued":
            return super()._candidates(now)
        self._window = WINDOW
        return [s for s in super()._candidates(now) if not prefetcher.holds_back(s.request, now)]


class PrefetchSimulator(Simulator):
    """A cluster that prefetches."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        sessions = self.settings.movement.prefetch == "session"
        self._follow = continuations(self.trace) if sessions else None

    def _build(self, number: int, own: MachineSettings) -> Machine:
        machine: Any = super()._build(number, own)
        movement = self.settings.movement
        if len(own.tiers) > 1 and movement.prefetch != "none":
            remote = machine.scheduler.parts.remote
            machine.scheduler.prefetcher = Prefetcher(machine.mover, movement, remote)
        built: Machine = machine
        return built

    def _left(self, s: SequenceState) -> None:
        super()._left(s)
        if self._follow is None:
            return
        for following in self._waiting.get(s.request, ()):
            if not self._missing[following]:
                at = self.engine.now_ns + int(self.trace.think_ns[following])
                self._prefetch_session(s, following, at)
        following = int(self._follow[s.request])
        if following != NO_REQUEST and self.trace.think_ns[following] == OPEN_LOOP:
            self._prefetch_session(s, following, int(self.trace.arrival_ns[following]))

    def _prefetch_session(self, s: SequenceState, following: int, at_ns: int) -> None:
        """Copy up a paused session's blocks some time before its next turn, on the machine that served it."""
        machine: Any = self.machines[s.machine]
        now, scheduler = self.engine.now_ns, machine.scheduler
        if scheduler.prefetcher is None or at_ns <= now:
            return
        when = max(at_ns - self.settings.movement.prefetch_lead_ns, now)
        tokens = int(self.trace.input_tokens[following])
        self.engine.schedule(when, ARRIVAL, machine.number, lambda _: scheduler.prefetch(following, tokens))


class PrefetchSeen(Seen):
    """A machine whose prefetched blocks are counted."""

    @property
    def prefetched_blocks(self) -> int | None:
        machine: Any = self._machine
        prefetcher = machine.scheduler.prefetcher
        return None if prefetcher is None else prefetcher.blocks
