"""The store and the transfers of one machine that is operated manually."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.tiers import TIERS
from kvcache_sim.cache.machine import Machine
from kvcache_sim.cache.operations.marking import marking
from kvcache_sim.cache.operations.native import NativeMovement
from kvcache_sim.cache.operations.transfer import NativeTransfer
from kvcache_sim.cache.store import BlockRange
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.workload.block_names import BlockNames


class OperatedStore:
    """One machine's store, with the queries that its manual operations share."""

    def __init__(
        self,
        machine: Machine,
        machines: Sequence[Machine],
        names: BlockNames,
        movement: NativeMovement,
    ) -> None:
        self.machine = machine
        #: The core's transfers of its blocks.
        self.mover = movement
        self.tiers = machine.tiers
        self.names = names
        self.store = marking(machine.tree)
        self.engine = machine.engine
        #: All machines, this one included: a lookup lists the copies on each.
        self._machines = machines

    @property
    def now_ns(self) -> int:
        """Current time of all machines."""
        return self.engine.now_ns

    def _evicted(self) -> dict[str, int]:
        """Return the blocks that each tier has evicted so far."""
        return {
            name: self.store.eviction_counts(level).evicted_blocks for level, name in enumerate(self.tiers)
        }

    def _level(self, tier: str) -> int:
        if tier not in self.tiers:
            raise UsageError("no such tier", got=tier, expected=f"one of {', '.join(self.tiers)}")
        return self.tiers.index(tier)

    def _open(self, moves: Sequence[int]) -> tuple[NativeTransfer, ...]:
        transfers = self.mover.transfers
        return tuple(transfers[move] for move in dict.fromkeys(moves) if move in transfers)

    def _issue(self) -> Mapping[int, NativeTransfer]:
        """Send the store's orders; return the transfers by move."""
        self.mover.issue()
        return self.mover.transfers

    def _on_tier(self, tier: int, request: int, blocks: BlockRange) -> list[int]:
        """Return the move writing each block to a tier, NO_COPY if it is not there."""
        start, end = blocks
        moves: list[int] = []
        for past, by in self.store.copies(request, end):
            moves += [by[tier] if tier < len(by) else NO_COPY] * (past - len(moves))
        moves += [NO_COPY] * (end - len(moves))
        return moves[start:end]

    def _only_on(self, source: int, target: int, request: int, blocks: BlockRange) -> list[int]:
        """Return the moves writing blocks to their source tier.

        Raises:
            UsageError: A block is not on the source, or is on the target already.
        """
        moves = self._on_tier(source, request, blocks)
        if NO_COPY in moves:
            raise UsageError(
                "a block is not there", got=f"blocks {tuple(blocks)}", expected=f"all on {TIERS[source]}"
            )
        if any(move != NO_COPY for move in self._on_tier(target, request, blocks)):
            raise UsageError(
                "a block is there already", got=f"blocks {tuple(blocks)}", expected=f"none on {TIERS[target]}"
            )
        return moves
