"""Channel presets: latency, cost of a piece and bandwidth of real links, each with its source."""

from __future__ import annotations

from pathlib import Path

from kvcache_sim.errors import UsageError
from kvcache_sim.model.catalog import check_keys, entry_names, read_entry, read_toml
from kvcache_sim.values import dataclass


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
    #: How far it is off its own measurements, in per cent; None: it was measured once, or in part assumed.
    error_percent: int | None = None

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
    """Return a preset: a packaged one by name, or a user's own file (``my.toml``).

    Raises UsageError for an unknown name with the names and the nearest one, for a file in one line that says
    what is missing.
    """
    if not name.endswith(".toml"):
        return ChannelSpec(name=name.lower(), **read_entry("channels", "channel preset", name))
    table = read_toml(Path(name), "channel")
    check_keys(table, {"source": str, "error_percent": int, **dict.fromkeys(_FIGURES, int)}, name)
    for key in _FIGURES:
        if table.get(key, -1) < (1 if key == "bandwidth_bytes_per_s" else 0):
            what = f"{key} is too small" if key in table else f"no {key}"
            raise UsageError(what, where=name, hint="kvsim channels new writes a file to start from")
    return ChannelSpec(name=Path(name).stem, **{"source": name, **table})


_FIGURES = ("bandwidth_bytes_per_s", "latency_ns", "piece_overhead_ns")
