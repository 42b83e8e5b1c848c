"""The global prefix store at the end of a run: seed 000's ``global_prefix_store``."""

from __future__ import annotations

from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.report.finished import FinishedRun, find_trace, number_column
from kvcache_sim.workload.tokens.row_key import id_name

#: Entries that the text shows.
_SHOWN = 20


def prefix_rows(run: FinishedRun) -> list[dict[str, Any]]:
    """Return the entries of a run's global prefix store, the most often hit first, then the longest.

    Under the seed's names, with the trace's own block ids, or None where the trace is not available. Raises
    ``UsageError`` for a run that did not keep them.
    """
    columns = run.prefixes
    if columns is None:
        raise UsageError(
            "the run kept no prefixes", str(run.directory), hint="run 'kvsim simulate' with --prefixes"
        )
    find_trace(run)
    values = {name: number_column(column).tolist() for name, column in columns.items()}
    rows = []
    for k, request in enumerate(values["request"]):
        ids: list[Any] | None = None
        if run.trace is not None:
            start = int(run.trace.id_offsets[request])
            end = start + values["length"][k] // run.trace.block_size
            ids = [id_name(run.trace, int(dense)) for dense in run.trace.block_ids[start:end]]
        rows.append(
            {
                "prefix_hash": values["prefix_hash"][k] if ids is None else ids[-1],
                "machine": values["machine"][k],
                "length": values["length"][k],
                "blocks": values["blocks"][k],
                "kv_block_ids": ids,
                "reference_count": values["reference_count"][k],
                "last_access_time": values["last_access_ns"][k] / NS_PER_S,
                "hits": values["hits"][k],
            }
        )
    return sorted(
        rows, key=lambda row: (-row["hits"], -row["length"], row["machine"], str(row["prefix_hash"]))
    )


def prefixes_text(rows: list[dict[str, Any]]) -> str:
    """Return the first entries for a terminal of 80 columns."""
    lines = [
        f"Global prefix store at the end: {len(rows):,} entries",
        f"{'hash':<20} {'machine':>7} {'length':>10} {'blocks':>8} {'held by':>7} {'last access':>13} "
        f"{'hits':>7}",
    ]
    for row in rows[:_SHOWN]:
        name = str(row["prefix_hash"])
        name = name if len(name) <= 20 else name[:19] + "…"
        lines.append(
            f"{name:<20} {row['machine']:>7} {row['length']:>10,} {row['blocks']:>8,} "
            f"{row['reference_count']:>7} {row['last_access_time']:>11,.3f} s {row['hits']:>7,}"
        )
    if len(rows) > _SHOWN:
        lines.append(f"and {len(rows) - _SHOWN:,} more: --format json has all")
    lines.append("hash: the prefix's last block id, which names all before it; length in tokens")
    return "\n".join(lines)
