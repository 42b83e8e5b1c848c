"""The process that assigns cells and writes results; a sweep resumes after it dies at any moment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kvcache_sim.base.disk import LOCAL_DISK, Disk
from kvcache_sim.base.errors import EXIT_OK, EXIT_SWEEP_FAILED, UsageError
from kvcache_sim.base.regular_files import read_regular
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Study
from kvcache_sim.extras.study.sweeps.plan import Plan, distinct, is_sound_plan, keep_plan
from kvcache_sim.extras.study.sweeps.stop import StopRequest
from kvcache_sim.extras.study.sweeps.store import CellStore, claim, locked
from kvcache_sim.extras.study.sweeps.tables import LiveTable, Row, export, is_sound_database, result_rows


class CellRunner(Protocol):
    """A runner of cells: local processes, or a cluster."""

    def run(self, study: Study, cells: Sequence[Cell], stop: StopRequest) -> Iterator[CellRecord]:
        """Yield a record for each cell, in any order; fewer when asked to stop."""
        ...


class SweepObserver(Protocol):
    """An observer of a sweep, without influence on it."""

    def begin(self, total: int, cached: int, damaged: Sequence[str]) -> None:
        """Report the number of cells, of cells finished before, and the damaged files that were set aside."""
        ...

    def cell_ended(self, cell: Cell, record: CellRecord) -> None:
        """Receive a record as its cell ends."""
        ...


#: Cells to run after those that ended, given all of them and their records; none ends the sweep.
FurtherCells = Callable[[Sequence[Cell], Mapping[str, CellRecord]], Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The outcome of a sweep: its rows, their records by cell id, and counts of distinct cells."""

    cells: Sequence[Cell]
    records: Mapping[str, CellRecord]
    cached: int
    failed: int
    missing: int
    #: Exit code of the signal that stopped it, 0 when it ran to its end.
    stopped_by: int

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command."""
        if self.stopped_by:
            return self.stopped_by
        return EXIT_SWEEP_FAILED if self.failed or self.missing else EXIT_OK


def run_sweep(
    plan: Plan,
    directory: Path,
    runner: CellRunner,
    stop: StopRequest,
    observer: SweepObserver,
    further: FurtherCells = lambda cells, records: (),
    disk: Disk = LOCAL_DISK,
) -> SweepOutcome:
    """Run the cells of a plan that have no sound record yet, then ``further`` ones, then write the tables.

    A finished cell never runs twice; failed ones run again. Effects: the sweep directory alone. Raises
    ``OutputExistsError`` (in use, another study), ``TraceError`` (an input changed), ``InputOutputError``
    (disk full, permission); in each case finished cells stay and the next call resumes from them.
    """
    claim(directory)
    with locked(directory):
        store = CellStore(directory, disk)
        store.create()
        plan_file, database = directory / "plan.json", directory / "results.sqlite"
        sound = {plan_file: is_sound_plan(plan_file), database: is_sound_database(database)}
        damaged = [str(store.set_aside(path)) for path, fine in sound.items() if not fine]
        keep_plan(plan, plan_file, disk)
        cells: list[Cell] = []
        records: dict[str, CellRecord] = {}
        cached = 0
        added: Sequence[Cell] = plan.own_cells()
        with LiveTable(database) as table:
            while added:
                cells += added
                table.expect(added)
                unique = distinct(added)
                kept, damaged_records = store.load(cell.cell_id for cell in unique)
                sound_records = {name: record for name, record in kept.items() if record.status == "ok"}
                cached += len(sound_records)
                records |= sound_records
                observer.begin(len(distinct(cells)), cached, [*damaged, *damaged_records])
                damaged = []
                for record in sound_records.values():
                    table.add(record)
                by_id = {cell.cell_id: cell for cell in unique}
                waiting = [cell for cell in unique if cell.cell_id not in records]
                for record in runner.run(plan.study, waiting, stop):
                    store.save(record)
                    table.add(record)
                    records[record.cell_id] = record
                    observer.cell_ended(by_id[record.cell_id], record)
                added = () if stop.level else further(cells, records)
        export(result_rows(cells, records), directory, disk)
        failed = sum(record.status != "ok" for record in records.values())
        missing = len(distinct(cells)) - len(records)
        return SweepOutcome(cells, records, cached, failed, missing, stop.exit_code)


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
        with LiveTable(directory / "results.sqlite") as table:
            table.expect(plan.cells)
            for record in gathered.values():
                store.save(record)
                table.add(record)
        export(result_rows(plan.cells, gathered), directory)
    return plan, gathered, damaged


def read_plan(directory: Path) -> Plan:
    """Return the plan kept in a sweep directory; raises ``UsageError`` where there is none."""
    try:
        content: dict[str, Any] = json.loads(read_regular(directory / "plan.json"))
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


class FinishedSweep(NamedTuple):
    """A sweep read back: its name, its rows, and the damaged files that were left out."""

    name: str
    rows: list[Row]
    damaged: list[Path]


def read_sweep(directory: Path) -> FinishedSweep:
    """Return a sweep, its cells without a record as missing; raises ``UsageError`` where there is none."""
    plan, store = read_plan(directory), CellStore(directory)
    ids = [cell.cell_id for cell in plan.unique_cells()]
    if {path.stem for path in store.cells.glob("[!.]*.json")} - set(ids):
        raise UsageError("a search, not a sweep", where=str(directory), hint="its own command has --plot")
    records, damaged = store.peek(ids)
    return FinishedSweep(plan.name, result_rows(plan.cells, records), damaged)
