"""Bytes that one machine moved: by edge, and read and written by tier."""

from __future__ import annotations

from kvcache_sim import _core
from kvcache_sim.base.tiers import KV_SOURCES, TIERS
from kvcache_sim.base.values import Struct, field


class MovedBytes(Struct):
    """Bytes moved so far; the core counts them."""

    #: By edge with traffic, for example ``cpu->gpu``.
    edge_bytes: dict[str, int] = field(default_factory=dict)
    #: By tier, fast to slow.
    read_bytes: list[int] = field(default_factory=lambda: [0] * len(TIERS))
    written_bytes: list[int] = field(default_factory=lambda: [0] * len(TIERS))

    def count(self, core: _core.Replica) -> None:
        """Copy the core's counts."""
        for source, target, size in core.edge_bytes():
            self.edge_bytes[f"{KV_SOURCES[source]}->{KV_SOURCES[target]}"] = size
        for level, (read, written) in enumerate(core.moved_bytes()):
            self.read_bytes[level], self.written_bytes[level] = read, written
