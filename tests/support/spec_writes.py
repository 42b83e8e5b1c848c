"""The specification with write policies and exclusive edges that no seed asks for: models of the core's
rules.

``through-sync`` writes as ``through`` does, and the next step waits for the copies. ``selective`` copies a
block down at its n-th use; what was never written is discarded at its eviction. On an exclusive edge the
lower copy is dropped once it has been read.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from kvcache_sim.base.tiers import COMPUTE, STAGING, TIERS
from kvcache_sim.cache.store import BlockRange
from kvcache_sim.serving.settings import ClusterSettings, MachineSettings
from kvcache_sim.spec.admission import Admission, Admitter
from kvcache_sim.spec.block_store import Part
from kvcache_sim.spec.movement_policies import WritePolicies
from kvcache_sim.spec.mover import Mover, Staged
from kvcache_sim.spec.request import OrderedLoad, SequenceState
from kvcache_sim.spec.scheduler import Scheduler
from kvcache_sim.spec.simulator import Machine, Simulator


def has_writes(settings: ClusterSettings) -> bool:
    """Return True if settings need this model."""
    movement = settings.movement
    return bool({"through-sync", "selective"} & {*movement.write.values()} or movement.exclusive)


class OtherWrites(WritePolicies):
    """The write policies of a machine; its simulator sets ``mover`` and ``uses``."""

    mover: Mover
    uses: int

    def __init__(self, store: Any, policies: Sequence[str]) -> None:
        through = ["through" if policy == "through-sync" else policy for policy in policies]
        super().__init__(store, through)
        self._policies = policies
        #: Copies that the next step waits for.
        self.awaited: set[int] = set()

    def committed(self, lease: int, blocks: BlockRange, now_ns: int) -> int | None:
        move = super().committed(lease, blocks, now_ns)
        if move is not None and self._policies[0] == "through-sync":
            self.awaited.add(move)
            self.mover.on_complete[move] = partial(self.awaited.discard, move)
        return move

    def used(self, lease: int, now_ns: int) -> None:
        """Copy the blocks that an admitted request has now used often enough."""
        for tier, policy in enumerate(self._policies):
            if policy == "selective":
                self._store.write_selected(lease, tier, self.uses, now_ns)


class WritesSimulator(Simulator):
    """A cluster with these write policies."""

    def _build(self, number: int, own: MachineSettings) -> Machine:
        machine = super()._build(number, own)
        if isinstance(machine.writes, OtherWrites):
            machine.writes.mover = machine.mover
            machine.writes.uses = self.settings.movement.write_selective_uses
        return machine


class WritesScheduler(Scheduler):
    """A scheduler whose steps wait for copies."""

    def compose(self, now: int) -> list[int]:
        capacity, writes = super().compose(now), self.parts.writes
        return [*capacity, *writes.awaited] if isinstance(writes, OtherWrites) else capacity


class WritesAdmitter(Admitter):
    """Admissions that count uses, and loads over exclusive edges."""

    def admit(self, s: SequenceState, now: int) -> Admission | None:
        admission, writes = super().admit(s, now), self.parts.writes
        if admission is not None and isinstance(writes, OtherWrites):
            writes.used(admission.lease, now)
        return admission

    def _load(self, request: int, admission: Admission, part: Part, now: int) -> OrderedLoad | None:
        load = super()._load(request, admission, part, now)
        if load is not None and part.tier != COMPUTE:
            self._drop_when_read(load.move, request, part, STAGING)
        return load

    def _stage_up(self, request: int, part: Part, now: int) -> list[Staged]:
        copies = super()._stage_up(request, part, now)
        for lower, move in copies:
            self._drop_when_read(move, request, part, lower)
        return copies

    def _drop_when_read(self, move: int, request: int, part: Part, lower: int) -> None:
        if TIERS[lower - 1] in self.movement.exclusive:
            drop = partial(self.store.drop_copy, request, part.start, part.end, lower)
            self.mover.on_complete[move] = drop
