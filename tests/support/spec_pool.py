"""The specification with a pool that machines share, which no seed asks for: a model of the core's rules.

A shared pool is memory without a GPU: what a machine writes down from its GPU is put there by a read of the
pool's own, and every machine reads it like another's CPU.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from kvcache_sim.base.tiers import COMPUTE, REMOTE, REMOTE_READ, STAGING, TIERS
from kvcache_sim.cache.settings import TierSettings
from kvcache_sim.simulation.end_checks import check_pool, check_stores
from kvcache_sim.simulation.measured import pool_counters
from kvcache_sim.spec.admission import Admission, Admitter
from kvcache_sim.spec.block_store import Away, Part
from kvcache_sim.spec.blocks import NO_MOVE
from kvcache_sim.spec.channels import Channels
from kvcache_sim.spec.mover import Mover
from kvcache_sim.spec.remote import RemoteReads
from kvcache_sim.spec.request import SequenceState
from kvcache_sim.spec.simulator import Machine, Simulator

from support.product.machines import check_channels
from support.product.spec import SpecSimulation, Transfer


class Pool:
    """Memory that all machines write and read over separate channels; eviction is the pool's."""

    def __init__(self, mover: Mover, movers: Mapping[int, Mover], channels: Channels) -> None:
        self.mover = mover
        self._movers = movers
        self._puts = RemoteReads(mover, movers, channels)
        #: Blocks that machines put here, that they read, and whose landing was refused.
        self.put_blocks = 0
        self.read_blocks = 0
        self.refused_blocks = 0
        #: Blocks of first admissions that came from here.
        self.hit_blocks = 0

    def put(self, machine: int, request: int, end: int) -> None:
        """Put the first ``end`` blocks of a request here, as far as they are missing and ready over there."""
        start, _ = self.mover.store.peek(request, end)
        reached = start
        for tier, first, last, by in self._movers[machine].store.match_below(request, start, end):
            if tier != STAGING or by != NO_MOVE or first != reached:
                break
            reached = last
        if reached == start:
            return
        part = Part(REMOTE, start, reached, NO_MOVE, Away(machine, STAGING))
        if self._puts.fetch(request, part, self.mover.engine.now_ns) is None:
            self.refused_blocks += reached - start
        else:
            self.put_blocks += reached - start
        self.mover.issue()

    def was_read(self, request: int, blocks: tuple[int, int]) -> None:
        """Make a path recent of which a machine reads blocks (first, past the last)."""
        start, end = blocks
        self.mover.store.touch(request, end)
        self.read_blocks += end - start


class PoolMover(Mover):
    """A mover that puts into a pool what has come down from the GPU."""

    pool: Pool | None = None

    def _finish(self, transfer: Transfer) -> None:
        paths = []
        if self.pool is not None and transfer.from_tier == COMPUTE:
            paths = self.store.moved_paths(transfer.move)
        super()._finish(transfer)
        for request, end in paths:
            assert self.pool is not None
            self.pool.put(self.machine, request, end)


class PoolReads(RemoteReads):
    """The reads of one machine from a pool, and from others."""

    pool: Pool

    def fetch(self, request: int, part: Part, now_ns: int) -> int | None:
        move = super().fetch(request, part, now_ns)
        if move is not None and part.away is not None and part.away.owner == self.pool.mover.machine:
            self.pool.was_read(request, (part.start, part.end))
        return move


class PoolAdmitter(Admitter):
    """Admissions that count what they read from a pool."""

    def _load_parts(self, s: SequenceState, admission: Admission, parts: list[Part], now: int) -> None:
        super()._load_parts(s, admission, parts, now)
        reads = self.parts.remote
        if s.preemptions == 0 and isinstance(reads, PoolReads):
            for part in parts:
                from_pool = part.away is not None and part.away.owner == reads.pool.mover.machine
                if from_pool and part.end <= admission.reused_blocks:
                    reads.pool.hit_blocks += part.end - part.start


class PoolSimulator(Simulator):
    """A cluster with a pool: a machine without a GPU, after all others."""

    pool: Pool

    def _build_machines(self) -> list[Machine]:
        number, settings, own = len(self.settings.machines), self.settings, self.settings.pool
        assert own is not None
        self.engine._numbers.append(0)  # the pool counts its own events
        memory = TierSettings(TIERS[STAGING], own.capacity_blocks, own.policy)
        tiers: Any = [TierSettings(TIERS[COMPUTE], 0), memory]
        no_lookups: Any = None
        store = self._make_store(tiers, no_lookups)
        channels = {REMOTE_READ: self.channels.between(0, number)}
        mover = self.mover_class(number, store, self.engine, channels, settings.cache, settings.movement)
        self._read[number] = mover
        self._movers: dict[int, Mover] = {}
        self.pool = Pool(mover, self._movers, self.channels)
        return super()._build_machines()

    def _remote_reads(self, mover: Mover) -> RemoteReads:
        assert isinstance(mover, PoolMover)
        super()._remote_reads(mover)
        mover.pool, self._movers[mover.machine] = self.pool, mover
        reads: Any = self.reads_class(mover, self._read, self.channels)
        reads.pool = self.pool
        made: RemoteReads = reads
        return made


class PoolSimulation(SpecSimulation):
    """A simulation that measures and checks the pool too."""

    @property
    def _pool(self) -> Any:
        simulator: Any = self.simulator
        counts = ("put_blocks", "read_blocks", "refused_blocks", "hit_blocks")
        own = {name: getattr(simulator.pool, name) for name in counts}
        mover = simulator.pool.mover
        own |= {"written_bytes": mover.written_bytes[STAGING], "block_bytes": mover.block_bytes}
        return SimpleNamespace(tree=mover.store, lost_blocks=0, cleared_blocks=0, **own)

    def _check_end(self) -> None:
        check_stores(self.replicas)
        check_pool(self._pool)
        check_channels(self.replicas, self._pool, self._channels, self.simulator.engine.now_ns)

    def _lanes(self) -> list[tuple[int, int]]:
        return [*super()._lanes(), (0, self._pool.tree.digest)]

    def _counters(self) -> dict[str, int]:
        return super()._counters() | pool_counters(self._pool, self.settings)
