"""Shards of one study, run apart by a batch system, put back together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.sweeps.cell import Cell, CellRecord, Study
from kvcache_sim.sweeps.lock import claim, locked
from kvcache_sim.sweeps.plan import Plan, keep_plan
from kvcache_sim.sweeps.store import CellStore
from kvcache_sim.sweeps.tables import LiveTable, export, result_rows


def merge_shards(shards: Sequence[Path], directory: Path) -> tuple[Plan, dict[str, CellRecord], list[str]]:
    """Gather the records of sweep directories of one study in another, and write its tables there.

    Returns the whole plan, the records, and the damaged files that were left out. Records are copied, the
    shards stay as they are. Raises ``UsageError`` when a directory is no sweep or of another study.
    """
    plan: Plan | None = None
    gathered: dict[str, CellRecord] = {}
    damaged: list[str] = []
    for shard in shards:
        found = read_plan(shard)
        if plan is not None and found.digest() != plan.digest():
            raise UsageError("shards of different studies", where=str(shard), got=repr(found.name))
        plan = plan or found
        with locked(shard):
            records, bad = CellStore(shard).load(cell.cell_id for cell in found.unique_cells())
        damaged += bad
        better = {name: r for name, r in records.items() if r.status == "ok" or name not in gathered}
        gathered |= better
    if plan is None:
        raise UsageError("no shards to merge")
    claim(directory)
    with locked(directory):
        store = CellStore(directory)
        store.create()
        keep_plan(plan, directory / "plan.json")
        with LiveTable(directory / "results.sqlite", plan.cells) as table:
            for record in gathered.values():
                store.save(record)
                table.add(record)
        export(result_rows(plan.cells, gathered), directory)
    return plan, gathered, damaged


def read_plan(directory: Path) -> Plan:
    """Return the plan kept in a sweep directory; raises ``UsageError`` where there is none."""
    try:
        content: dict[str, Any] = json.loads((directory / "plan.json").read_bytes())
        names = content["settings"]  # JSON objects are written in the order of the alphabet
        cells = tuple(
            Cell(index, cell_id, {name: settings[name] for name in names if name in settings}, repeat)
            for index, (cell_id, repeat, settings) in enumerate(content["cells"])
        )
        return Plan(content["name"], Study("", "", files=content["files"]), cells)
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            "not a sweep directory", where=str(directory), expected="a plan.json in it"
        ) from None
