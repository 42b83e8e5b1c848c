"""Many settings of one scenario, in Python."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvcache_sim.api.calls import at_least_one, public
from kvcache_sim.api.html import html_page, html_table
from kvcache_sim.api.scenario import Scenario, ScenarioLike, as_scenario
from kvcache_sim.api.settings import full_key, lay_over, plain
from kvcache_sim.api.simulate import resolve_requests
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.output import write_new
from kvcache_sim.extras.study.sweeps.cell import Cell, CellRecord, Limits, Setting
from kvcache_sim.extras.study.sweeps.coordinator import FurtherCells, run_sweep
from kvcache_sim.extras.study.sweeps.plan import Plan, distinct
from kvcache_sim.extras.study.sweeps.simulation import plan_sweep
from kvcache_sim.extras.study.sweeps.space import Space
from kvcache_sim.extras.study.sweeps.stop import stop_on_signals
from kvcache_sim.extras.study.sweeps.study import SweepFile, as_setting
from kvcache_sim.extras.study.sweeps.supervisor import LocalRunner
from kvcache_sim.extras.study.sweeps.tables import Row, result_rows
from kvcache_sim.extras.study.sweeps.worker import CellFunction, load_cell_function, run_cell
from kvcache_sim.metrics.names import resolve_metric
from kvcache_sim.report.best_cell import best_row, ranked_table
from kvcache_sim.report.ranking import rank_cells
from kvcache_sim.report.sweep_report import rows_text
from kvcache_sim.scenario.yaml_tree import Tree
from kvcache_sim.workload.toolbox.write import mooncake_lines
from kvcache_sim.workload.trace import Trace


class Sweep:
    """The finished cells of a sweep, as the tables of ``kvsim sweep`` have them.

    Attributes:
        rows: One row a cell: its settings as ``set.NAME``, and every figure of the summary under its dotted
            name.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.rows)

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` of a row a cell."""
        from kvcache_sim.extras.study.sweeps.tables import arrow_rows

        return arrow_rows(self.rows)

    def to_pandas(self) -> Any:
        """Return a pandas data frame of a row a cell; needs pandas."""
        return self.to_arrow().to_pandas()

    @public
    def best(self, figure: str, largest: bool = False) -> Row:
        """Return the row with the least value of a figure: ``best("ttft.p99")``.

        Args:
            figure: Name of a figure, dotted.
            largest: Return the row with the largest value instead.

        Raises:
            UsageError: The figure is unknown, or no cell has it.
        """
        return dict(best_row(self.rows, resolve_metric(figure, "figure"), largest))

    def __str__(self) -> str:
        """Return the cells as a table, and the verdict."""
        return rows_text(rank_cells(self.rows))

    def __repr__(self) -> str:
        failed = sum(row["status"] != "ok" for row in self.rows)
        return f"<{type(self).__name__} of {len(self)} cells, {failed} failed>"

    def _repr_html_(self) -> str:
        return html_page(f"{len(self)} cells", html_table(ranked_table(rank_cells(self.rows))))


@public
def sweep(
    trace_or_workload: Any = None,
    /,
    scenario: ScenarioLike = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
    repeats: int = 1,
    jobs: int = 1,
    directory: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Sweep:
    """Simulate requests under every combination of settings.

    Args:
        trace_or_workload: Requests: a ``Trace``, a trace file, a workload or columns, as ``simulate`` takes
            them.
        scenario: A ``Scenario``, the path of a scenario file, or settings; None: all defaults.
        grid: Dotted setting → values to try, in all combinations.
        rows: Whole sets of settings, each combined with ``grid``.
        repeats: Runs of each row, with seeds derived from the scenario's; intervals are then over seeds.
        jobs: Processes that run cells.
        directory: Directory of finished cells, which a later call reuses.
        settings: Keys that replace those of the scenario.

    Returns:
        A row a cell; a cell that failed has the status ``failed`` and its error.

    Raises:
        UsageError: A setting is wrong, or there is nothing to try; nothing has run.
        TraceError: The trace has data that cannot be trusted.
    """
    at_least_one(jobs=jobs, repeats=repeats)
    space = settings_space(grid or {}, rows)
    if not space.factors():
        raise UsageError("nothing to try", expected="grid={key: [a, b]}, or rows=[{key: a}, {key: b}]")
    asked, given = resolve_requests(trace_or_workload, as_scenario(scenario), settings)
    with requests_in_a_file(asked, given) as (written, folder):
        plan = plan_sweep(replace(study_of(written, space), repeats=repeats))
        return Sweep(run_cells(plan, directory if directory is not None or jobs == 1 else folder, jobs))


@contextmanager
def requests_in_a_file(asked: Scenario, given: Trace | None) -> Iterator[tuple[Scenario, Path]]:
    """Yield a scenario whose given requests are in a file, and a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="kvsim-sweep-") as name:
        folder = Path(name)
        if given is not None:
            file = folder / "trace.jsonl"
            write_new(file, "".join(mooncake_lines(given)).encode(), overwrite=False)
            read_settings = {"path": str(file), "block_size": given.block_size, "time_order": "keep"}
            asked = asked.with_(trace=read_settings)
        yield asked, folder / "cells"


def run_cells(
    plan: Plan,
    directory: str | os.PathLike[str] | None,
    jobs: int,
    further: FurtherCells = lambda cells, records: (),
) -> list[Row]:
    """Return the rows of a plan's cells, and of those added; without a directory they run here, in turn."""
    if directory is not None:
        with stop_on_signals() as stop:
            runner = LocalRunner(jobs, Limits())
            outcome = run_sweep(plan, Path(directory), runner, stop, _Unwatched(), further)
        return result_rows(outcome.cells, outcome.records)
    function = load_cell_function(plan.study.cell_function)
    cells: list[Cell] = []
    records: dict[str, CellRecord] = {}
    added: Sequence[Cell] = plan.own_cells()
    while added:
        cells += added
        for cell in distinct(added):
            if cell.cell_id not in records:
                records[cell.cell_id] = _run(function, plan, cell)
        added = further(cells, records)
    return result_rows(cells, records)


def settings_space(grid: Mapping[str, Sequence[Any]], rows: Sequence[Mapping[str, Any]]) -> Space:
    """Return the settings to try: all combinations of ``grid``, and each of ``rows``."""
    columns: dict[str, list[Setting]] = {}
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise UsageError(
                "not values to try", where=f"grid: {key}", got=repr(values)[:60], expected="a list"
            )
        settings = [as_setting(plain(value, key), f"grid: {key}") for value in values]
        names = {full_key(key, setting) for setting in settings}
        columns[names.pop() if len(names) == 1 else key] = settings
    return Space(grid=columns, points=[_dotted(row) for row in rows])


def _dotted(row: Mapping[str, Any]) -> dict[str, Setting]:
    """Return a set of settings under dotted keys."""
    tree = Tree()
    lay_over(tree, row)
    settings: dict[str, Setting] = {}
    for path in tree.locations:
        value: Any = tree.values
        for step in path:
            value = value[step]
        key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
        settings[key.removeprefix(".")] = as_setting(value, "rows")
    return settings


def study_of(scenario: Scenario, space: Space) -> SweepFile:
    """Return a study of one scenario."""
    return SweepFile(scenario.directory / "sweep", "sweep", scenario.written, space, 1, 0, Limits())


def _run(function: CellFunction, plan: Plan, cell: Cell) -> CellRecord:
    ended: Any = run_cell(function, plan.study, cell)
    return CellRecord(cell.cell_id, ended["status"], ended["summary"], ended["error"])


class _Unwatched:
    """An observer that does nothing."""

    def begin(self, total: int, cached: int, damaged: Sequence[str]) -> None:
        """Do nothing."""

    def cell_ended(self, cell: Cell, record: CellRecord) -> None:
        """Do nothing."""
