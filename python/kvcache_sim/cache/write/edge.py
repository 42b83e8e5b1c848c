"""The write policy of one edge of one machine: a name of the core's, or a plug-in."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.base.values import Value
from kvcache_sim.cache.settings import MovementSettings
from kvcache_sim.cache.store import BlockRange
from kvcache_sim.cache.tree_store import TieredStore
from kvcache_sim.cache.write import WRITE, WRITES
from kvcache_sim.cache.write.policy import WritePolicy


class EdgeWrites(Value):
    """The write policy of one edge; ``name`` is ``back`` for a plug-in."""

    name: str
    plugin: WritePolicy | None = None

    @property
    def writes_back(self) -> bool:
        """True if a victim without a copy below is written there at its eviction."""
        return self.plugin.writes_back if self.plugin else self.name != "selective"

    @property
    def at_commit(self) -> bool:
        """True if the policy is notified of each commit on the edge of the GPU."""
        return self.plugin.at_commit if self.plugin else self.name in ("through", "through-sync")

    def committed(self, store: TieredStore, lease: int, blocks: BlockRange, now_ns: int) -> int | None:
        """Copy newly shared blocks [first, past the last) of a lease down, if the policy does; the move."""
        if self.plugin is not None:
            return self.plugin.committed(store, lease, blocks, now_ns)
        return store.write_through(lease, *blocks, now_ns) if self.at_commit else None


def edge_writes(uppers: Sequence[str], movement: MovementSettings) -> tuple[EdgeWrites, ...]:
    """Return the policy of each edge by its upper tier; UsageError for a plug-in that cannot be made."""
    found = []
    for level, tier in enumerate(uppers):
        name = movement.write.get(tier, "back")
        made = EdgeWrites(name) if name in WRITES else EdgeWrites("back", WRITE.make(name, level, movement))
        found.append(made)
    return tuple(found)
