"""``kvsim sweep``: many configurations of one scenario; ``kvsim sweep merge`` puts shards back together."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.base.errors import EXIT_OK, EXIT_SWEEP_FAILED, UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.cells import cell_runner, parse_shard, usable_cores
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.notices import warn
from kvcache_sim.cli.run_options import refuse_idle
from kvcache_sim.cli.verb import TraceGroup, verb_app

if TYPE_CHECKING:
    from kvcache_sim.extras.study.sweeps.plan import Plan
    from kvcache_sim.extras.study.sweeps.study import SweepFile

app = verb_app()


class Study(Value):
    """The configurations to run: a file, or a scenario and values to try."""

    trace: Annotated[Path | None, Argument(metavar="[TRACE]", help="without -c: the trace to replay")] = None
    config: Annotated[Path | None, Option("-c", "--config", metavar="FILE", help="sweep file")] = None
    scenario: Annotated[Path | None, Option(metavar="FILE", help="without -c: the scenario to vary")] = None
    settings: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="without -c: a setting of all cells")
    ] = None
    grid: Annotated[
        list[str] | None, Option(metavar="KEY=A,B", help="without -c: values to try; may be repeated")
    ] = None

    def read(self) -> SweepFile:
        """Return the study; raises UsageError for none, and for a file and options at once."""
        from kvcache_sim.extras.study.sweeps.study import inline_sweep, read_sweep_file

        if self.config is not None:
            if self.scenario or self.trace or self.settings or self.grid:
                hint = "leave TRACE, --set, --grid; a scenario goes with --scenario"
                raise UsageError("a sweep file says it all", where="-c", hint=hint)
            return read_sweep_file(self.config)
        if not self.grid:
            raise UsageError("nothing to try", expected="-c FILE, or --grid KEY=A,B")
        return inline_sweep(self.scenario, self.trace, self.settings or [], self.grid)


class Cells(Value):
    """The cells to run, and their workers."""

    output: Annotated[Path | None, Option("-o", "--output", metavar="DIR", help="sweep directory")] = None
    jobs: Annotated[
        int | None, Option("-j", "--jobs", min=1, max=1024, help="workers; default: one a core")
    ] = None
    on: Annotated[str, Option(metavar="local|ray[:ADDRESS]", help="where cells run")] = "local"
    backend: Annotated[str, Option(hidden=True)] = ""
    shard: Annotated[str, Option(metavar="I/N", help="run the I-th of N parts of the cells")] = ""
    repeats: Annotated[
        int | None, Option(min=1, max=10_000, help="seeds of each row; default: 5 of generated requests")
    ] = None


class Results(Value):
    """The output."""

    dry_run: Annotated[bool, "count and estimate, run nothing"] = False
    pareto: Annotated[str, Option(metavar="GOALS", help="such as 'ttft.p99:min,cost:min'")] = ""
    report: Annotated[Path | None, Option(metavar="FILE.html", help="write a report when done")] = None
    quiet: Annotated[bool, Option("--quiet", "-q", help="no progress")] = False


@app.callback(cls=TraceGroup, invoke_without_command=True)
def sweep(context: typer.Context, study: Study, cells: Cells, results: Results) -> int:
    """Run every configuration of a sweep file; run it again to resume where it stopped.

    \b
    Examples:
      kvsim sweep trace.jsonl --set cluster.machines=8 --grid router.policy=round-robin,least-loaded
      kvsim sweep -c sweep.yaml --dry-run
      kvsim sweep -c sweep.yaml -o sweeps/cpu-size --pareto 'ttft.p99:min,cost:min'
      kvsim sweep -c sweep.yaml --shard 1/4 -o part-1   # one of four batch jobs
      kvsim sweep merge part-1 part-2 part-3 part-4 -o whole
    """
    if context.invoked_subcommand is not None:
        return EXIT_OK
    if cells.backend:
        raise UsageError("renamed", where="--backend", got=cells.backend, expected=f"--on {cells.backend}")
    from kvcache_sim.extras.study.sweeps.simulation import plan_sweep
    from kvcache_sim.metrics.objectives import parse_objectives

    if results.dry_run:
        other = cells.on if cells.on != "local" else ""
        refuse_idle("with --dry-run", report=results.report, pareto=results.pareto, on=other)
    objectives = parse_objectives(results.pareto) if results.pareto else ()
    file = study.read()
    varied = file if cells.repeats is None else replace(file, repeats=cells.repeats)
    plan = plan_sweep(varied, parse_shard(cells.shard))
    directory = cells.output or Path("sweeps") / f"{plan.name}-{plan.digest()[:6]}"
    workers = cells.jobs or usable_cores()
    if results.dry_run:
        _estimate(plan, directory, workers)
        return EXIT_OK
    from kvcache_sim.cli.sweep_progress import shown_sweep
    from kvcache_sim.extras.study.sweeps.coordinator import run_sweep
    from kvcache_sim.extras.study.sweeps.single_run import single_run
    from kvcache_sim.extras.study.sweeps.stop import stop_on_signals
    from kvcache_sim.extras.study.sweeps.tables import result_rows
    from kvcache_sim.report.ranking import rank_cells
    from kvcache_sim.report.sweep_report import rows_text, write_sweep_report

    runner = cell_runner(cells.on, workers, file.limits)
    shown = objectives[0] if objectives else None
    with stop_on_signals() as stop, shown_sweep(results.quiet, shown) as observer:
        outcome = run_sweep(plan, directory, runner, stop, observer)
    rows = result_rows(plan.own_cells(), outcome.records)
    ranking = rank_cells(rows, objectives)
    print(rows_text(ranking, objectives))
    if ranking.order:
        (cell,) = (one for one in plan.own_cells() if one.index == ranking.order[0].row["cell"])
        source = study.config.parent / str(file.scenario) if study.config is not None else study.scenario
        words = single_run(study.trace, source, study.settings or [], cell.settings)
        passes_time = ranking.order[0].row.get("step_times.source") is not None
        print(_next(file, study.config, [*words, *["--sensitivity"] * passes_time]))
    if results.report is not None:
        write_sweep_report(results.report, plan.name, rows, objectives)
    counts = f"{len(outcome.records)} cells ended ({outcome.cached} before), {outcome.failed} failed"
    print(f"{counts}, {outcome.missing:,} not run; tables in {directory}", file=sys.stderr)
    if outcome.exit_code not in (EXIT_OK, EXIT_SWEEP_FAILED):
        print("stopped; run the same command again to resume", file=sys.stderr)
    return outcome.exit_code


@app.command()
def merge(
    shards: Annotated[list[Path], Argument(metavar="SHARD...", help="sweep directories of one study")],
    output: Annotated[Path, Option("-o", "--output", metavar="DIR", help="directory of the whole")],
) -> int:
    """Put the shards of one study together: the same tables as a sweep that ran whole.

    \b
    Example:
      kvsim sweep merge part-1 part-2 -o whole
    """
    from kvcache_sim.extras.study.sweeps.coordinator import merge_shards

    plan, records, damaged = merge_shards(shards, output)
    for path in damaged:
        warn(f"damaged, left out: {path}")
    missing = len(plan.unique_cells()) - len(records)
    failed = sum(record.status != "ok" for record in records.values())
    print(
        f"{len(records):,} cells, {failed:,} failed, {missing:,} missing; tables in {output}", file=sys.stderr
    )
    return EXIT_SWEEP_FAILED if missing or failed else EXIT_OK


def _next(file: SweepFile, config: Path | None, words: list[str]) -> str:
    """Return the next command to run: a report, if the sweep file holds its scenario."""
    from kvcache_sim.report.plain_table import shell_lines

    if config is not None and not isinstance(file.scenario, str):
        words = ["kvsim", "sweep", "-c", str(config), "--report", "sweep.html"]
    return shell_lines("next: ", words)


def _estimate(plan: Plan, directory: Path, jobs: int) -> None:
    from kvcache_sim.base.units import format_time_ns
    from kvcache_sim.extras.study.sweeps.plan import estimate
    from kvcache_sim.extras.study.sweeps.store import CellStore

    records, _ = CellStore(directory).peek(cell.cell_id for cell in plan.unique_cells())
    estimated = estimate(plan, records)
    basis = "from finished cells" if estimated.is_measured else "from a default rate: no cell has ended yet"
    print(f"rows        {estimated.rows:,}")
    left = estimated.distinct - estimated.finished
    print(f"cells       {estimated.distinct:,} distinct, {estimated.finished:,} finished, {left:,} to run")
    print(f"cpu time    about {format_time_ns(estimated.cpu_s * 1e9)} ({basis})")
    print(f"wall time   about {format_time_ns(estimated.wall_s(jobs) * 1e9)} on {jobs} workers")
    print(f"directory   {directory}")
