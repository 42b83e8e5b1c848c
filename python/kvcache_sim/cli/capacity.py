"""``kvsim capacity``: the highest rate within the limits of latency, and the cheapest design."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvcache_sim.base.errors import EXIT_OK, EXIT_SWEEP_FAILED, EXIT_THRESHOLD, UsageError
from kvcache_sim.cli.cells import cell_runner, parse_shard, say_launch, usable_cores
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def capacity(
    trace: Annotated[
        Path | None, typer.Argument(metavar="[TRACE]", help="trace file; else the scenario's")
    ] = None,
    config: Annotated[Path | None, typer.Option("-c", "--config", metavar="FILE", help="scenario")] = None,
    candidates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="sweep file of the candidates, instead of -c and --grid"),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a setting of all candidates")
    ] = None,
    grid: Annotated[
        list[str] | None, typer.Option(metavar="KEY=A,B", help="values that make candidates; may be repeated")
    ] = None,
    slo: Annotated[
        str, typer.Option(metavar="LIMITS", help="such as ttft=2s,tpot=50ms; over the scenario's")
    ] = "",
    attain: Annotated[str, typer.Option(metavar="SHARE", help="of requests within all limits")] = "99%",
    need: Annotated[str, typer.Option(metavar="RATE", help="the cheapest that holds this, such as 5/s")] = "",
    min_rate: Annotated[
        str, typer.Option(metavar="RATE", help="lowest rate tried; default: a thousandth")
    ] = "",
    max_rate: Annotated[
        str, typer.Option(metavar="RATE", help="highest rate tried; default: a thousand times")
    ] = "",
    pools: Annotated[
        Literal["", "auto"],
        typer.Option(metavar="auto", help="also split the machines into prefill and decode"),
    ] = "",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="directory of finished candidates")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", min=1, max=1024, help="workers; default: one a core")
    ] = None,
    on: Annotated[
        str, typer.Option("--on", metavar="local|ray[:ADDRESS]", help="where candidates run")
    ] = "local",
    shard: Annotated[str, typer.Option(metavar="I/N", help="run the I-th of N parts of the candidates")] = "",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="draw cost against rate: .svg, .png, .html")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file that --plot names")] = False,
    output_format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="of the answer on stdout")
    ] = "table",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no progress")] = False,
) -> int:
    """Find the highest rate of requests that a configuration holds; arrival times are scaled.

    The rate is found to 2 % and confirmed by whole runs 3 % below and 5 % above. With --need the numbers of
    machines between those of the grid are tried too. Exit 4: no candidate holds any rate, or the one needed.

    \b
    Examples:
      kvsim capacity trace.jsonl --slo ttft=2s,tpot=50ms --attain 99%
      kvsim capacity trace.jsonl --slo ttft=2s --grid cluster.machines=4,8 --grid replica.max_num_seqs=64,256
      kvsim capacity -c my.yaml --slo ttft=2s --grid cluster.machines=4,16 --need 10/s --plot frontier.svg
      kvsim capacity -c my.yaml --slo ttft=2s --set cluster.machines=8 --pools auto
    """
    from kvcache_sim.base.output import refuse_existing, write_new
    from kvcache_sim.cli.sweep_progress import shown_sweep
    from kvcache_sim.extras.study.sizing.candidate import plan_capacity
    from kvcache_sim.extras.study.sizing.question import Question, parse_attain, parse_limits, parse_rate
    from kvcache_sim.extras.study.sizing.text import answer_text, draw
    from kvcache_sim.extras.study.sweeps.coordinator import run_sweep
    from kvcache_sim.extras.study.sweeps.stop import stop_on_signals
    from kvcache_sim.extras.study.sweeps.study import inline_sweep, read_sweep_file
    from kvcache_sim.extras.study.sweeps.tables import result_rows
    from kvcache_sim.report.picture import NothingToDraw
    from kvcache_sim.report.plotting import check_file, encoded, require_plotting

    question = Question(
        parse_attain(attain),
        parse_rate(min_rate, "--min-rate") if min_rate else None,
        parse_rate(max_rate, "--max-rate") if max_rate else None,
    )
    limits = parse_limits(slo) if slo else {}
    need_per_s = parse_rate(need, "--need") if need else None
    if plot is not None:
        require_plotting()
        check_file(plot, "--plot")
        refuse_existing(plot, force)
    if candidates is not None:
        if config or trace or settings or grid:
            hint = "leave TRACE, -c, --set, --grid"
            raise UsageError("a file of candidates says it all", where="--candidates", hint=hint)
        file = read_sweep_file(candidates)
    else:
        file = inline_sweep(config, trace, settings or [], grid or [], "capacity")
    further = plan_capacity(file, question, limits, parse_shard(shard), need_per_s, bool(pools))
    plan = further.plan
    directory = output or Path("capacity") / f"{plan.name}-{plan.digest()[:6]}"
    runner = cell_runner(on, jobs or usable_cores(), file.limits)
    with stop_on_signals() as stop, shown_sweep(quiet, None) as observer:
        outcome = run_sweep(plan, directory, runner, stop, observer, further)
    answer = further.answer(result_rows(outcome.cells, outcome.records))
    if output_format == "json":
        asked = {"slo": limits, **question.parameters()}
        print(json.dumps(answer.as_json(asked), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(answer_text(answer, question.attain))
    if plot is not None:
        drawn = draw(answer, plan.name)
        if isinstance(drawn, NothingToDraw):
            print(f"nothing to draw: {drawn.reason}", file=sys.stderr)
        else:
            write_new(plot, encoded(drawn, plot.suffix), force)
            print(f"wrote {plot}", file=sys.stderr)
    if (cheapest := answer.cheapest) is not None:
        say_launch(
            plan.study, next(cell.settings for cell in outcome.cells if cell.index == cheapest["cell"])
        )
    print(f"candidates in {directory}", file=sys.stderr)
    if outcome.exit_code not in (EXIT_OK, EXIT_SWEEP_FAILED):
        print("stopped; run the same command again to resume", file=sys.stderr)
    if outcome.exit_code != EXIT_OK:
        return outcome.exit_code
    return EXIT_OK if answer.cheapest is not None else EXIT_THRESHOLD
