"""Channel presets: latency, cost of a piece and bandwidth of real links, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from kvcache_sim.model.catalog import entry_names, read_entry


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """One direction of a link: ``t = latency + max(pieces · piece_overhead, bytes / bandwidth)``.

    Small pieces are bound by their submission, large ones by the link (kv_transfer.csv).
    """

    name: str
    source: str
    bandwidth_bytes_per_s: int
    latency_ns: int
    piece_overhead_ns: int

    def transfer_ns(self, size_bytes: int, pieces: int = 1) -> int:
        """Return the time of one transfer on the idle link in ns, 0 for no bytes."""
        if size_bytes == 0:
            return 0
        moved = -(-size_bytes * 1_000_000_000 // self.bandwidth_bytes_per_s)
        return self.latency_ns + max(pieces * self.piece_overhead_ns, moved)


def channel_names() -> tuple[str, ...]:
    """Return the names of the packaged presets."""
    return entry_names("channels")


def load_channel(name: str) -> ChannelSpec:
    """Return a packaged preset; UsageError with the names and the nearest one when there is none such."""
    return ChannelSpec(name=name.lower(), **read_entry("channels", "channel preset", name))
