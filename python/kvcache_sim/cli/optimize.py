"""``kvsim optimize``: the best settings that meet conditions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvcache_sim.cli.cells import usable_cores
from kvcache_sim.cli.verb import verb_app
from kvcache_sim.errors import EXIT_OK, EXIT_THRESHOLD, UsageError

app = verb_app()


@app.command()
def optimize(
    config: Annotated[
        Path, typer.Option("-c", "--config", metavar="FILE", help="sweep file with random.space")
    ],
    minimize: Annotated[str, typer.Option(metavar="METRIC", help="number to make small")] = "",
    maximize: Annotated[str, typer.Option(metavar="METRIC", help="number to make large")] = "",
    subject_to: Annotated[
        list[str] | None, typer.Option(metavar="CONDITION", help="such as 'ttft.p99 < 2s'; may be repeated")
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, max=100_000, help="default: random.draws")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="search directory")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", min=1, max=1024, help="default: one a core")
    ] = None,
) -> int:
    """Search the space of a sweep file for the best settings; run it again to resume. Exit 4: none meets all.

    \b
    Example (cost: prices in the scenario give cost per million tokens):
      kvsim optimize -c sweep.yaml --minimize cost --subject-to 'ttft.p99 < 2s' --trials 60
    """
    from kvcache_sim.metrics.names import resolve_metric
    from kvcache_sim.metrics.objectives import Objective
    from kvcache_sim.metrics.thresholds import parse_threshold
    from kvcache_sim.sweeps.optimize import Goal, Search, best
    from kvcache_sim.sweeps.optimize import optimize as search_for
    from kvcache_sim.sweeps.simulation import prepare
    from kvcache_sim.sweeps.stop import stop_on_signals
    from kvcache_sim.sweeps.study import read_sweep_file

    if bool(minimize) == bool(maximize):
        raise UsageError("one goal is needed", expected="--minimize METRIC or --maximize METRIC")
    where = "--minimize" if minimize else "--maximize"
    objective = Objective(resolve_metric(minimize or maximize, where), bool(minimize))
    conditions = tuple(parse_threshold(text, "--subject-to") for text in subject_to or [])
    for condition in conditions:
        if condition.needs_baseline:
            raise UsageError("a condition has no baseline", where="--subject-to", got=repr(condition.text))
    file = read_sweep_file(config)
    if not file.space.draws or len(file.space.factors()) > 1:
        raise UsageError(
            "not a space to search", where=str(config), expected="random.space alone, no grid, zip, list"
        )
    study, resolve = prepare(file)
    workers = jobs or usable_cores()
    search = Search(file.space.draws, trials or file.space.draw_count, file.seed, workers, file.limits)
    directory = output or Path("searches") / file.name
    with stop_on_signals() as stop:
        finished_trials = search_for(study, resolve, search, Goal(objective, conditions), directory, stop)
        stopped = stop.exit_code
    chosen = best(finished_trials, objective)
    feasible = sum(trial.is_feasible for trial in finished_trials)
    print(f"{len(finished_trials):,} trials, {feasible:,} meet every condition; {directory}", file=sys.stderr)
    if stopped:
        print("stopped; run the same command again to resume", file=sys.stderr)
        return stopped
    if chosen is None:
        print("no settings tried meet every condition", file=sys.stderr)
        return EXIT_THRESHOLD
    print(f"best {objective.metric} {chosen.value:.6g} (trial {chosen.number})")
    for name, value in chosen.settings.items():
        print(f"  --set {name}='{value}'")
    return EXIT_OK
