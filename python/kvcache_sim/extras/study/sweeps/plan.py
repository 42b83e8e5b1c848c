"""A study laid out: every cell with its address, kept in ``plan.json`` so that a resume is the same study."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim.base.disk import LOCAL_DISK, Disk
from kvcache_sim.base.errors import InputOutputError, OutputExistsError, TraceError, UsageError
from kvcache_sim.base.regular_files import read_regular
from kvcache_sim.base.rng.root import repeat_seed
from kvcache_sim.extras.study.sweeps.cell import (
    Cell,
    CellRecord,
    Setting,
    Study,
    canonical_json,
    content_address,
)
from kvcache_sim.extras.study.sweeps.space import MAX_CELLS, Space
from kvcache_sim.extras.study.sweeps.store import write_atomically


class Resolved(NamedTuple):
    """A row of settings, resolved: its whole configuration, and its amount of work (any unit)."""

    configuration: object
    work: float


class Shard(NamedTuple):
    """A part of a study's cells: its number, from 1, of so many."""

    number: int
    of: int


WHOLE = Shard(1, 1)

#: Turns a row of settings into its resolved configuration; raises ``UsageError`` on a wrong setting.
Resolve = Callable[[Mapping[str, Setting]], Resolved]


@dataclass(frozen=True, slots=True)
class Plan:
    """A study with all its cells, in the order the tables keep."""

    name: str
    study: Study
    cells: tuple[Cell, ...]
    #: The part that this sweep runs; the study stays whole.
    shard: Shard = WHOLE

    def digest(self) -> str:
        """Return the address of the study: its cells (and so their files), whatever their paths."""
        return content_address([cell.cell_id for cell in self.cells])

    def setting_names(self) -> list[str]:
        """Return the names of all settings, in the order in which the study gives them."""
        return list(dict.fromkeys(name for cell in self.cells for name in cell.settings))

    def own_cells(self) -> list[Cell]:
        """Return the rows of this shard; the shards share out all rows."""
        return [cell for cell in self.cells if cell.index % self.shard.of == self.shard.number - 1]

    def unique_cells(self) -> list[Cell]:
        """Return the cells to run: rows that come to the same configuration run once."""
        return distinct(self.own_cells())


def distinct(cells: Sequence[Cell]) -> list[Cell]:
    """Return the first of the cells of each configuration."""
    return list({cell.cell_id: cell for cell in reversed(cells)}.values())[::-1]


def lay_out(name: str, study: Study, space: Space, repeats: int, seed: int, resolve: Resolve) -> Plan:
    """Return the plan of a space of settings, each row run with so many seeds.

    Repeat 0 keeps the scenario's own seed, so that raising the count later keeps its cells.
    """
    if space.size() * repeats > MAX_CELLS:
        raise UsageError(
            "too many cells", got=f"{space.size()} × {repeats} repeats", expected=f"at most {MAX_CELLS:,}"
        )
    file_digests = sorted(study.files.values())
    cells: list[Cell] = []
    for row in space.rows(seed):
        for repeat in range(repeats):
            settings = row if repeat == 0 else {**row, "seed": repeat_seed(seed, repeat)}
            if repeat and "seed" in row:
                raise UsageError("seed is a setting of the study and repeats derive it too")
            configuration, work = resolve(settings)
            address = content_address([study.cell_function, configuration, file_digests])
            cells.append(Cell(len(cells), address, settings, repeat, work))
    return Plan(name, study, tuple(cells))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex; raises ``UsageError`` or ``InputOutputError``."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise UsageError("no such file", where=str(path)) from None
    except OSError as error:
        raise InputOutputError(f"cannot read: {error.strerror}", where=str(path)) from error


def keep_plan(plan: Plan, path: Path, disk: Disk = LOCAL_DISK) -> None:
    """Write ``plan.json``, or check that the one there is of this study.

    Raises ``TraceError`` when an input file changed since, ``OutputExistsError`` when the directory belongs
    to another study.
    """
    content = {
        "digest": plan.digest(),
        "name": plan.name,
        "files": dict(plan.study.files),
        "settings": plan.setting_names(),
        "cells": [[cell.cell_id, cell.repeat, dict(cell.settings)] for cell in plan.cells],
    }
    before = _read_plan(path)
    if before is None:
        write_atomically(path, (canonical_json(content) + "\n").encode(), disk)
        return
    for name, sha256 in plan.study.files.items():
        if before["files"].get(name, sha256) != sha256:
            raise TraceError(
                "changed since this sweep was planned",
                where=name,
                got=f"SHA-256 {sha256[:16]}…",
                expected=f"{before['files'][name][:16]}…",
                hint="finished cells would no longer fit: put the file back, or choose another -o",
            )
    if before["digest"] != content["digest"]:
        raise OutputExistsError(
            "this directory holds another study",
            where=str(path.parent),
            got=repr(before["name"]),
            hint="choose another -o",
        )


def is_sound_plan(path: Path) -> bool:
    """Return True if a plan file can be read and agrees with its own digest; an absent one is sound."""
    return not path.exists() or _read_plan(path) is not None


def _read_plan(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(read_regular(path))
        if content["digest"] != content_address([cell[0] for cell in content["cells"]]):
            raise ValueError("digest")
        return {key: content[key] for key in ("digest", "name", "files")}
    except FileNotFoundError:
        return None  # a first run
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    except OSError as error:
        raise InputOutputError(f"cannot read: {error.strerror}", where=str(path)) from error


#: CPU seconds of a unit of work before a cell has finished: a request of the conversation trace.
DEFAULT_S_PER_WORK = 60e-6


@dataclass(frozen=True, slots=True)
class Estimate:
    """The number of cells and the time of those still to run."""

    rows: int
    distinct: int
    finished: int
    #: CPU seconds of the cells still to run, at the rate of measured cells or a default rate.
    cpu_s: float
    is_measured: bool

    def wall_s(self, jobs: int) -> float:
        """Return the time on ``jobs`` workers, ideal packing."""
        return self.cpu_s / max(1, min(jobs, self.distinct - self.finished))


def estimate(plan: Plan, records: Mapping[str, CellRecord]) -> Estimate:
    """Return the estimate for the cells of a plan that have no finished record."""
    cells = plan.unique_cells()
    finished = {name for name, record in records.items() if record.status == "ok"}
    rates = [
        records[cell.cell_id].elapsed_s / cell.work
        for cell in cells
        if cell.cell_id in finished and cell.work > 0
    ]
    rate = statistics.median(rates) if rates else DEFAULT_S_PER_WORK
    work = sum(cell.work for cell in cells if cell.cell_id not in finished)
    return Estimate(len(plan.own_cells()), len(cells), len(finished), work * rate, bool(rates))
