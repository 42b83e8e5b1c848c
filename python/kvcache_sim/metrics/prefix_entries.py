"""The global prefix store at the end of a run: its entries and their use.

The fields are those of seed 000's ``GlobalPrefixCacheInfo``. They are kept on request (``--prefixes``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvcache_sim.metrics.columns import STATUSES, Column
from kvcache_sim.metrics.run import ColumnData
from kvcache_sim.workload.trace import Trace

#: prefixes.parquet: one row per entry, grouped by machine, shorter before longer.
PREFIX_COLUMNS: dict[str, Column] = {
    "machine": Column("int16", "machine that holds it"),
    "prefix_hash": Column("int64", "number of its last block id in the trace; it names all blocks before it"),
    "length": Column("int64", "its tokens"),
    "blocks": Column("int64", "its cache blocks"),
    "reference_count": Column("int64", "who holds it at the end: 0, or sessions under simplified accounting"),
    "last_access_ns": Column("int64", "when the last request that used it was done with it"),
    "hits": Column("int64", "requests that found all of it cached at their first admission"),
    "request": Column("int32", "a request whose prompt begins with it"),
}

#: The resident prefixes of a request's prompt on a machine: (length in tokens, users), the shorter first.
Resident = Callable[[int, int], Sequence[tuple[int, int]]]


@dataclass(slots=True)
class _Entry:
    length: int
    dense_id: int
    request: int
    users: int
    last_access_ns: int = -1
    hits: int = 0
    longer: list[int] = field(default_factory=list)

    @property
    def use(self) -> tuple[int, int, int]:
        return self.users, self.last_access_ns, self.hits


def prefix_entries(
    requests: Mapping[str, Any], trace: Trace, resident: Resident, block_size_tokens: int
) -> dict[str, ColumnData]:
    """Return the columns of ``PREFIX_COLUMNS``: the longest of nested prefixes with equal use.

    ``requests`` are the columns of a run's requests. Prefixes are whole block ids of the trace in the cache.
    Cost: one lookup per request, one dictionary operation per resident id reference.
    """
    row = {name: np.asarray(requests[name]).tolist() for name in _READ}
    offsets, size = trace.id_offsets.tolist(), trace.block_size
    entries: list[_Entry] = []
    positions: dict[tuple[int, int, int], int] = {}
    machines: list[int] = []
    for request in range(len(trace)):
        machine = row["machine"][request]
        if row["status"][request] != STATUSES.index("finished"):
            continue
        held = resident(machine, request)
        at, part = -1, 0
        whole = (held[-1][0] if held else 0) // size
        for k, dense in enumerate(trace.block_ids[offsets[request] : offsets[request] + whole].tolist()):
            length = (k + 1) * size
            while held[part][0] < length:
                part += 1
            above, at = at, positions.setdefault((machine, at, dense), len(entries))
            if at == len(entries):
                entries.append(_Entry(length, dense, request, held[part][1]))
                machines.append(machine)
                if above >= 0:
                    entries[above].longer.append(at)
            entry = entries[at]
            entry.last_access_ns = max(entry.last_access_ns, row["finish_ns"][request])
            entry.hits += row["cached_prefix_length_used"][request] >= length
    kept = [
        (machines[n], entry.length, entry.dense_id, n)
        for n, entry in enumerate(entries)
        if not (len(entry.longer) == 1 and entries[entry.longer[0]].use == entry.use)
    ]
    chosen = [(machine, entries[n]) for machine, _, _, n in sorted(kept)]
    columns: dict[str, list[int]] = {
        "machine": [machine for machine, _ in chosen],
        "prefix_hash": [entry.dense_id for _, entry in chosen],
        "length": [entry.length for _, entry in chosen],
        "blocks": [entry.length // block_size_tokens for _, entry in chosen],
        "reference_count": [entry.users for _, entry in chosen],
        "last_access_ns": [entry.last_access_ns for _, entry in chosen],
        "hits": [entry.hits for _, entry in chosen],
        "request": [entry.request for _, entry in chosen],
    }
    return {name: np.array(columns[name], np.dtype(column.dtype)) for name, column in PREFIX_COLUMNS.items()}


_READ = ("status", "machine", "finish_ns", "cached_prefix_length_used")
