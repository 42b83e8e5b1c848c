"""Channel presets: latency, cost per piece and bandwidth of real links, each with its source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.catalog import check_keys, entry_names, read_entry, read_toml


class ChannelSpec(Value):
    """One direction of a link, and the cost of the pieces of a job on it.

    ``t = latency + n · piece_submit + max(n · piece_overhead, bytes / bandwidth + n · piece_gap)`` for n
    pieces. Small pieces are bound by their submission, large ones by the link (kv_transfer.csv). The CPU
    submits later jobs of a sequence while the bytes of earlier jobs are sent.
    """

    name: str
    source: str
    bandwidth_bytes_per_s: int
    latency_ns: int
    piece_overhead_ns: int
    piece_gap_ns: int = 0
    piece_submit_ns: int = 0
    #: Measured range of the submission time of a piece; None: no range is stated.
    piece_submit_range_ns: tuple[int, ...] | None = None
    #: Error relative to its own measurements, in percent; None: measured once, or partly assumed.
    error_percent: int | None = None

    def transfer_ns(self, size_bytes: int, pieces: int = 1) -> int:
        """Return the time of one transfer on the idle link in ns, 0 for no bytes."""
        if size_bytes == 0:
            return 0
        moved = -(-size_bytes * 1_000_000_000 // self.bandwidth_bytes_per_s)
        occupied = max(pieces * self.piece_overhead_ns, moved + pieces * self.piece_gap_ns)
        return self.latency_ns + pieces * self.piece_submit_ns + occupied


def channel_names() -> tuple[str, ...]:
    """Return the names of the packaged presets."""
    return entry_names("channels")


def load_channel(name: str) -> ChannelSpec:
    """Return a preset: a packaged one by name, or a user's own file (``my.toml``).

    Raises UsageError for an unknown name with all names and the nearest one, for a file in one line with the
    missing key.
    """
    if not name.endswith(".toml"):
        entry = read_entry("channels", "channel preset", name)
        return ChannelSpec(name=name.lower(), **_with_range(entry))
    table = read_toml(Path(name), "channel")
    known: dict[str, type | tuple[type, ...]] = {"source": str, "error_percent": int, _RANGE: list}
    check_keys(table, {**known, **dict.fromkeys((*_FIGURES, *_OF_PIECES), int)}, name)
    for key in (*_FIGURES, *_OF_PIECES):
        if table.get(key, 0 if key in _OF_PIECES else -1) < (1 if key == "bandwidth_bytes_per_s" else 0):
            what = f"{key} is too small" if key in table else f"no {key}"
            raise UsageError(what, where=name, hint="kvsim channels new writes a file to start from")
    return ChannelSpec(name=Path(name).stem, **_with_range({"source": name, **table}))


def _with_range(table: dict[str, Any]) -> dict[str, Any]:
    given = table.get(_RANGE)
    return table if given is None else {**table, _RANGE: tuple(given)}


_FIGURES = ("bandwidth_bytes_per_s", "latency_ns", "piece_overhead_ns")
#: Optional figures of a file.
_OF_PIECES = ("piece_gap_ns", "piece_submit_ns")
_RANGE = "piece_submit_range_ns"
