"""Logs as `kvsim trace import` reads them."""

import json
from pathlib import Path

from kvcache_sim.workload.imports.kind import Reading
from kvcache_sim.workload.imports.naming import Naming, Notes
from kvcache_sim.workload.imports.write import import_logs


def imported(path: Path, kind: str = "", skips: bool = False, salt: bytes = b"mine"):
    """Return the kind, the rows with ids numbered in order of appearance, and the notes."""
    notes = Notes()
    found = import_logs([str(path)], kind, Reading(Naming(16, salt), notes, skips))
    assert found is not None
    first: dict[int, int] = {}
    rows = [json.loads(line) for line in found.lines()]
    for row in rows:
        if "hash_ids" in row:
            row["hash_ids"] = [first.setdefault(id, len(first)) for id in row["hash_ids"]]
        row.pop("session_id", None)
    return found.kind.name, rows, notes
