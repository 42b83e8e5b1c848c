"""The two digests of a run: of what happened, and of what came out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from kvcache_sim.metrics.columns import REQUEST_COLUMNS
from kvcache_sim.metrics.run import ColumnData


def digest_of_events(lanes: Iterable[tuple[int, int]]) -> str:
    """Return SHA-256 over each machine's two rolling hashes (arrivals, own records), in machine order."""
    text = "\n".join(f"{arrivals:016x} {records:016x}" for arrivals, records in lanes)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_results(requests: Mapping[str, ColumnData]) -> str:
    """Return SHA-256 over the columns of ``requests``, little-endian, in the order of the contract."""
    digest = hashlib.sha256()
    for name, column in REQUEST_COLUMNS.items():
        digest.update(name.encode())
        data = np.asarray(requests[name])
        digest.update(np.ascontiguousarray(data, np.dtype(column.dtype).newbyteorder("<")).tobytes())
    return digest.hexdigest()
