"""``kvsim optimize``: the best settings that meet conditions."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from kvcache_sim.base.errors import EXIT_OK, EXIT_THRESHOLD, UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.cells import say_launch, usable_cores
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.notices import warn
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.extras.study.sweeps.cell import Cell, Study
    from kvcache_sim.extras.study.sweeps.optimize import Goal

app = verb_app()

Config = Annotated[Path, Option("-c", "--config", metavar="FILE", help="sweep file with random.space")]


class Wanted(Value):
    """The figure to make small or large, and the conditions."""

    minimize: Annotated[str, Option(metavar="METRIC", help="number to make small")] = ""
    maximize: Annotated[str, Option(metavar="METRIC", help="number to make large")] = ""
    subject_to: Annotated[
        list[str] | None, Option(metavar="CONDITION", help="such as 'ttft.p99 < 2s'; may be repeated")
    ] = None

    def goal(self) -> Goal:
        """Return the goal of the search; raises UsageError for none, two, and signed conditions."""
        from kvcache_sim.extras.study.sweeps.optimize import parse_goal

        return parse_goal(self.minimize, self.maximize, self.subject_to or [], "--{}")


class Work(Value):
    """The number of trials, and their workers."""

    trials: Annotated[int | None, Option(min=1, max=100_000, help="default: random.draws")] = None
    output: Annotated[Path | None, Option("-o", "--output", metavar="DIR", help="search directory")] = None
    jobs: Annotated[int | None, Option("-j", "--jobs", min=1, max=1024, help="default: one a core")] = None


@app.command()
def optimize(config: Config, wanted: Wanted, work: Work) -> int:
    """Search the space of a sweep file for the best settings; run it again to resume. Exit 4: none meets all.

    \b
    Example (cost: prices in the scenario give cost per million tokens):
      kvsim optimize -c sweep.yaml --minimize cost --subject-to 'ttft.p99 < 2s' --trials 60
    """
    from kvcache_sim.extras.study.sweeps.optimize import Search, tried
    from kvcache_sim.extras.study.sweeps.optimize import optimize as search_for
    from kvcache_sim.extras.study.sweeps.simulation import prepare
    from kvcache_sim.extras.study.sweeps.single_run import single_run
    from kvcache_sim.extras.study.sweeps.stop import stop_on_signals
    from kvcache_sim.extras.study.sweeps.study import read_sweep_file
    from kvcache_sim.report.plain_table import plain_sentences, shell_lines
    from kvcache_sim.report.ranking import rank_all
    from kvcache_sim.report.ranking_text import verdict

    goal = wanted.goal()
    file = read_sweep_file(config)
    if not file.space.draws or len(file.space.factors()) > 1:
        raise UsageError(
            "not a space to search", where=str(config), expected="random.space alone, no grid, zip, list"
        )
    study, resolve = prepare(file)
    workers = work.jobs or usable_cores()
    search = Search(file.space.draws, work.trials or file.space.draw_count, file.seed, workers, file.limits)
    directory = work.output or Path("searches") / file.name
    with stop_on_signals() as stop:
        finished_trials = search_for(study, resolve, search, goal, directory, stop)
        stopped = stop.exit_code
    feasible = [trial for trial in finished_trials if trial.is_feasible and trial.value is not None]
    counts = f"{len(finished_trials):,} trials, {len(feasible):,} meet every condition; {directory}"
    print(counts, file=sys.stderr)
    if stopped:
        print("stopped; run the same command again to resume", file=sys.stderr)
        return stopped
    if not feasible:
        print("no settings tried meet every condition", file=sys.stderr)
        return EXIT_THRESHOLD
    cells, rows = tried(study, resolve, feasible, directory)
    ranking = rank_all(rows, goal.objective)
    (cell,) = (one for one in cells if one.index == ranking.order[0].row["cell"])
    intervals = _intervals(study, cell, goal.objective.metric)
    print(plain_sentences(verdict(ranking, "trial", intervals)))
    source = config.parent / file.scenario if isinstance(file.scenario, str) else None
    words = single_run(None, source, [], cell.settings)
    if source is None:
        print(shell_lines("settings: ", words[2:]))
    else:
        passes_time = ranking.order[0].row.get("step_times.source") is not None
        print(shell_lines("next: ", [*words, *["--sensitivity"] * (passes_time and intervals is None)]))
    say_launch(study, cell.settings)
    return EXIT_OK


def _intervals(study: Study, cell: Cell, metric: str) -> str | None:
    """Return the intervals of a figure of a cell, run again and at both bounds of its model; else None.

    None for a figure without intervals of the model, and for a cell of more than 20 CPU s.
    """
    from kvcache_sim.extras.study.sweeps.simulation import requests_of_cell
    from kvcache_sim.metrics.certainty import CERTAIN, intervals_text
    from kvcache_sim.report.intervals.certainty import MOST_CPU_S, with_certainty
    from kvcache_sim.scenario.execute import execute
    from kvcache_sim.simulation import RunOptions

    figure = next((name for name, certain_figure in CERTAIN.items() if certain_figure.metric == metric), None)
    if figure is None:
        return None
    scenario, trace = requests_of_cell(study, cell)
    if scenario.model.replica.instant:
        return None
    began_s = time.process_time()
    done = execute(scenario, trace, RunOptions(times=True))
    if time.process_time() - began_s > MOST_CPU_S:
        return None
    certain, _, missing = with_certainty(done, trace)
    if missing:
        warn(missing)
    text = intervals_text(certain.summary, figure)
    return f" ({text})" if text else ""
