"""The two digests of a run: of its events, and of its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import Sha256
from kvcache_sim.metrics.columns import REQUEST_COLUMNS
from kvcache_sim.metrics.run import ColumnData


class MachineHashes(NamedTuple):
    """The rolling hashes of a machine: of its arrivals, and of its own records."""

    arrivals: int
    records: int


def digest_of_events(machines: Iterable[MachineHashes]) -> str:
    """Return SHA-256 over each machine's two rolling hashes, in machine order."""
    text = "\n".join(f"{arrivals:016x} {records:016x}" for arrivals, records in machines)
    return Sha256(text.encode()).hexdigest()


def digest_of_results(requests: Mapping[str, ColumnData]) -> str:
    """Return SHA-256 over the columns of ``requests``, little-endian, in the order of the contract."""
    digest = Sha256()
    for name in REQUEST_COLUMNS:
        digest.update(name.encode())
        digest.update(_little_endian(name, requests[name]).tobytes())
    return digest.hexdigest()


class _Piece(NamedTuple):
    """Some rows of one column: their position in the file, or the single value of all of them."""

    rows: int
    offset: int
    value: NDArray[Any] | None


class ResultsDigest:
    """The digest of streamed rows: equal to ``digest_of_results`` of all rows at once.

    That digest is computed column by column, so the columns wait in ``file`` until all rows are there, unless
    all rows of a piece have the same value. Cost: up to 250 bytes of the file per row, read once at the end.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pieces: dict[str, list[_Piece]] = {name: [] for name in REQUEST_COLUMNS}
        self._end = 0

    def add(self, requests: Mapping[str, ColumnData]) -> None:
        """Add the columns of the next rows; OSError if the file cannot be written."""
        for name, pieces in self._pieces.items():
            column = _little_endian(name, requests[name])
            if len(column) and bool((column == column[0]).all()):
                pieces.append(_Piece(len(column), 0, column[:1].copy()))
                continue
            pieces.append(_Piece(len(column), self._end, None))
            self._end += self._file.write(column.data)

    def value(self) -> str:
        """Return the digest of all rows."""
        digest = Sha256()
        for name, pieces in self._pieces.items():
            digest.update(name.encode())
            for rows, offset, value in pieces:
                if value is not None:
                    digest.update(np.repeat(value, rows).tobytes())
                    continue
                self._file.seek(offset)
                digest.update(self._file.read(rows * np.dtype(REQUEST_COLUMNS[name].dtype).itemsize))
        return digest.hexdigest()


def _little_endian(name: str, column: ColumnData) -> NDArray[Any]:
    return np.ascontiguousarray(column, np.dtype(REQUEST_COLUMNS[name].dtype).newbyteorder("<"))
