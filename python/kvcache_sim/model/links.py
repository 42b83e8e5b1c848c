"""Time of all-reduces and exchanges among the GPUs of one machine: measured tables, packaged or given."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.catalog import read_entry
from kvcache_sim.model.points import Point, Points

#: Without measurements: the time of a small all-reduce among 2–8 GPUs in a CUDA graph (4.3–5.7 µs measured
#: over NVLink); a large one sends the message twice at this share of the link's rate.
ASSUMED_LATENCY_MS = 0.005
ASSUMED_EFFICIENCY = 0.8


#: By number of GPUs: points by bytes.
_Points = tuple[tuple[int, Points], ...]


@dataclass(frozen=True, slots=True)
class AllReduces:
    """Measured all-reduces: by number of GPUs, (bytes of the message, ms), both rising.

    ``exchanges`` are the same of one all-gather and one reduce-scatter, by bytes of the gathered buffer.
    Without them, an all-reduce of that buffer, which is the same traffic, replaces both.
    """

    name: str
    source: str
    points: _Points
    exchanges: _Points = ()

    def ms(self, gpus: int, message_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the ms of an all-reduce of each size; linear between sizes, the last rate past them.

        A number of GPUs between two measured ones is interpolated over its logarithm. Raises UsageError
        outside the measured numbers: more GPUs are on more than one machine.
        """
        return self._at(self.points, gpus, message_bytes)

    def exchange_ms(self, gpus: int, buffer_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the ms of an all-gather and a reduce-scatter of each buffer; as ``ms`` otherwise."""
        return self._at(self.exchanges or self.points, gpus, buffer_bytes)

    def _at(self, points: _Points, gpus: int, message_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        measured = dict(points)
        if gpus in measured:
            return _between_sizes(measured[gpus], message_bytes)
        fewer, more = ([n for n in measured if n < gpus], [n for n in measured if n > gpus])
        if not fewer or not more:
            known = ", ".join(str(n) for n in measured)
            raise UsageError(f"no all-reduce among {gpus} GPUs in {self.name}", expected=f"one of {known}")
        low, high = max(fewer), min(more)
        share = math.log2(gpus / low) / math.log2(high / low)
        below, above = (_between_sizes(measured[n], message_bytes) for n in (low, high))
        return below + share * (above - below)


def _between_sizes(points: Points, message_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    x, y = np.array(points).T
    past = np.maximum(message_bytes - x[-1], 0.0) * (y[-1] / x[-1])
    return np.asarray(np.interp(message_bytes, x, y) + past, np.float64)


def load_links(name: str) -> AllReduces:
    """Return a table by name (``nvlink-h100``, ``pcie5``) or from a CSV.

    The CSV has one row per all-reduce: ``num_gpus``, ``message_bytes`` (or ``message_elements``, of two
    bytes) and ``time_ms``. A column ``op`` adds rows of ``all_gather`` and ``reduce_scatter``, and ``dtype``
    leaves out rows of other than two bytes. Raises UsageError for an unknown name or an invalid file, naming
    the line.
    """
    if name.endswith((".csv", ".csv.gz")):
        return _from_csv(Path(name))
    entry: dict[str, Any] = read_entry("links", "links", name)
    exchanges = read_entry("links", "links", entry["exchange_as"]) if "exchange_as" in entry else entry
    all_reduces, gathered = (
        tuple(
            (int(gpus), tuple(Point(float(size), float(ms)) for size, ms in rows))
            for gpus, rows in table.items()
        )
        for table in (entry["all_reduce"], exchanges.get("exchange", {}))
    )
    return AllReduces(name.lower(), entry["source"], all_reduces, gathered)


#: By number of GPUs and bytes: the ms.
_Times = dict[int, dict[float, float]]
_TWO_BYTES = ("half", "bfloat16", "bf16", "fp16")


def _from_csv(path: Path) -> AllReduces:
    found: dict[str, _Times] = {"all_reduce": {}, "all_gather": {}, "reduce_scatter": {}}
    try:
        packed = path.read_bytes()
        text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (OSError, UnicodeDecodeError, EOFError, zlib.error, csv.Error) as error:
        raise UsageError(f"cannot read the links: {error}", where=str(path)) from None
    for line, row in enumerate(rows, 2):
        times = found.get(row.get("op", "all_reduce"))
        if times is None or row.get("dtype", "half") not in _TWO_BYTES:
            continue
        gpus, size, ms = _row(row, f"{path}:{line}")
        if times.setdefault(gpus, {}).setdefault(size, ms) != ms:
            got = f"{gpus} GPUs, {size:g} bytes"
            raise UsageError("an all-reduce with two times", where=f"{path}:{line}", got=got)
    gathers, scatters = found["all_gather"], found["reduce_scatter"]
    exchanges: _Times = {}
    for gpus, sizes in gathers.items():
        both = scatters.get(gpus, {})
        exchanges[gpus] = {size: ms + both[size] for size, ms in sizes.items() if size in both}
    if not (found["all_reduce"] or exchanges):
        raise UsageError("no all-reduces", where=str(path), expected="num_gpus,message_bytes,time_ms")
    reduced = found["all_reduce"] or exchanges
    return AllReduces(str(path), str(path), _rising(reduced), _rising(exchanges))


def _rising(times: _Times) -> _Points:
    return tuple(
        (gpus, tuple(Point(*sample) for sample in sorted(sizes.items())))
        for gpus, sizes in sorted(times.items())
        if sizes
    )


def _row(row: dict[str, str], where: str) -> tuple[int, float, float]:
    elements = "message_elements" in row and "message_bytes" not in row
    try:
        gpus = int(row["num_gpus"])
        size = float(row["message_elements"]) * 2 if elements else float(row["message_bytes"])
        ms = float(row["time_ms"])
    except (KeyError, TypeError, ValueError):
        expected = "num_gpus,message_bytes,time_ms"
        raise UsageError("not an all-reduce", where=where, expected=expected) from None
    if gpus < 2 or not 0 < size < math.inf or not 0 < ms < math.inf:
        raise UsageError("not an all-reduce", where=where, got=f"{gpus} GPUs, {size:g} bytes, {ms:g} ms")
    return gpus, size, ms


def all_reduce_ms(
    links: AllReduces | None, link_bytes_per_s: float, gpus: int, message_bytes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the ms of one all-reduce of each size among ``gpus``; 0 for a single GPU.

    Without a table, or with more GPUs than it has, from latency and rate of the links.
    """
    if gpus == 1:
        return np.zeros_like(message_bytes)
    if links is not None and gpus <= links.points[-1][0]:
        return links.ms(gpus, message_bytes)
    return ASSUMED_LATENCY_MS + 2 * message_bytes / (link_bytes_per_s * ASSUMED_EFFICIENCY) * 1e3


def exchange_ms(
    links: AllReduces | None, link_bytes_per_s: float, gpus: int, buffer_bytes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the ms of one all-gather and one reduce-scatter of each buffer, as ``all_reduce_ms``."""
    if links is not None and 1 < gpus <= (links.exchanges or links.points)[-1][0]:
        return links.exchange_ms(gpus, buffer_bytes)
    return all_reduce_ms(None, link_bytes_per_s, gpus, buffer_bytes)
