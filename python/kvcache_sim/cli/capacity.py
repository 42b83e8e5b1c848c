"""``kvsim capacity``: the highest rate within the limits of latency, and the cheapest design."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from kvcache_sim.base.errors import EXIT_OK, EXIT_SWEEP_FAILED, EXIT_THRESHOLD, UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.cells import cell_runner, parse_shard, say_launch, usable_cores
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.extras.study.sizing.question import Answer, Question
    from kvcache_sim.extras.study.sweeps.study import SweepFile

app = verb_app()


class Candidates(Value):
    """The configurations to compare."""

    trace: Annotated[Path | None, Argument(metavar="[TRACE]", help="trace file; else the scenario's")] = None
    config: Annotated[Path | None, Option("-c", "--config", metavar="FILE", help="scenario")] = None
    candidates: Annotated[
        Path | None, Option(metavar="FILE", help="sweep file of the candidates, instead of -c and --grid")
    ] = None
    settings: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="a setting of all candidates")
    ] = None
    grid: Annotated[
        list[str] | None, Option(metavar="KEY=A,B", help="values that make candidates; may be repeated")
    ] = None

    def read(self) -> SweepFile:
        """Return the study of the candidates; raises UsageError for a file and options at once."""
        from kvcache_sim.extras.study.sweeps.study import inline_sweep, read_sweep_file

        if self.candidates is None:
            return inline_sweep(self.config, self.trace, self.settings or [], self.grid or [], "capacity")
        if self.config or self.trace or self.settings or self.grid:
            hint = "leave TRACE, -c, --set, --grid"
            raise UsageError("a file of candidates says it all", where="--candidates", hint=hint)
        return read_sweep_file(self.candidates)


class Rates(Value):
    """The limits to hold, and the rates to try."""

    slo: Annotated[str, Option(metavar="LIMITS", help="such as ttft=2s,tpot=50ms; over the scenario's")] = ""
    attain: Annotated[str, Option(metavar="SHARE", help="of requests within all limits")] = "99%"
    need: Annotated[str, Option(metavar="RATE", help="the cheapest that holds this, such as 5/s")] = ""
    min_rate: Annotated[str, Option(metavar="RATE", help="lowest rate tried; default: a thousandth")] = ""
    max_rate: Annotated[str, Option(metavar="RATE", help="highest rate tried; default: a thousand times")] = (
        ""
    )
    sessions: Annotated[bool, "find sessions at a time (workload.concurrency), not the rate"] = False
    pools: Annotated[
        Literal["", "auto"], Option(metavar="auto", help="also split the machines into prefill and decode")
    ] = ""

    def question(self) -> Question:
        """Return the question to answer; raises UsageError."""
        from kvcache_sim.extras.study.sizing.question import Question, parse_attain, parse_rate

        return Question(
            parse_attain(self.attain),
            parse_rate(self.min_rate, "--min-rate") if self.min_rate else None,
            parse_rate(self.max_rate, "--max-rate") if self.max_rate else None,
            self.sessions,
        )


class Work(Value):
    """The workers, and the output."""

    output: Annotated[
        Path | None, Option("-o", "--output", metavar="DIR", help="directory of finished candidates")
    ] = None
    jobs: Annotated[
        int | None, Option("-j", "--jobs", min=1, max=1024, help="workers; default: one a core")
    ] = None
    on: Annotated[str, Option(metavar="local|ray[:ADDRESS]", help="where candidates run")] = "local"
    shard: Annotated[str, Option(metavar="I/N", help="run the I-th of N parts of the candidates")] = ""
    plot: Annotated[Path | None, Option(metavar="FILE", help="draw cost against rate: .svg, .png, .html")] = (
        None
    )
    force: Annotated[bool, "replace the file that --plot names"] = False
    output_format: Annotated[Literal["table", "json"], Option("--format", help="of the answer on stdout")] = (
        "table"
    )
    quiet: Annotated[bool, Option("--quiet", "-q", help="no progress")] = False


@app.command()
def capacity(candidates: Candidates, rates: Rates, work: Work) -> int:
    """Find the highest rate of requests that a configuration holds; arrival times are scaled.

    The rate is found to 2 % and confirmed by whole runs 3 % below and 5 % above. With --need the numbers of
    machines between those of the grid are tried too. With --sessions arrivals stay: each session is replaced
    as it ends, and their number is found. Exit 4: no candidate holds any load, or the one needed.

    \b
    Examples:
      kvsim capacity trace.jsonl --slo ttft=2s,tpot=50ms --attain 99%
      kvsim capacity trace.jsonl --slo ttft=2s --grid cluster.machines=4,8 --grid replica.max_num_seqs=64,256
      kvsim capacity -c my.yaml --slo ttft=2s --grid cluster.machines=4,16 --need 10/s --plot frontier.svg
      kvsim capacity -c my.yaml --slo ttft=2s --set cluster.machines=8 --pools auto
      kvsim capacity trace.jsonl --slo ttft=2s --sessions
    """
    from kvcache_sim.base.output import refuse_existing
    from kvcache_sim.cli.sweep_progress import shown_sweep
    from kvcache_sim.extras.study.sizing.candidate import plan_capacity
    from kvcache_sim.extras.study.sizing.question import parse_limits, parse_need
    from kvcache_sim.extras.study.sizing.text import answer_text
    from kvcache_sim.extras.study.sweeps.coordinator import run_sweep
    from kvcache_sim.extras.study.sweeps.stop import stop_on_signals
    from kvcache_sim.extras.study.sweeps.tables import result_rows
    from kvcache_sim.report.plotting import check_file, require_plotting

    question = rates.question()
    limits = parse_limits(rates.slo) if rates.slo else {}
    need_per_s = parse_need(rates.need, "--need", rates.sessions) if rates.need else None
    if work.plot is not None:
        require_plotting()
        check_file(work.plot, "--plot")
        refuse_existing(work.plot, work.force)
    file = candidates.read()
    further = plan_capacity(file, question, limits, parse_shard(work.shard), need_per_s, bool(rates.pools))
    plan = further.plan
    directory = work.output or Path("capacity") / f"{plan.name}-{plan.digest()[:6]}"
    runner = cell_runner(work.on, work.jobs or usable_cores(), file.limits)
    with stop_on_signals() as stop, shown_sweep(work.quiet, None) as observer:
        outcome = run_sweep(plan, directory, runner, stop, observer, further)
    answer = further.answer(result_rows(outcome.cells, outcome.records))
    if work.output_format == "json":
        asked = {"slo": limits, **question.parameters()}
        print(json.dumps(answer.as_json(asked), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(answer_text(answer, question.attain))
    if work.plot is not None:
        _plot(answer, plan.name, work.plot, work.force)
    if (cheapest := answer.cheapest) is not None:
        settings = next(cell.settings for cell in outcome.cells if cell.index == cheapest["cell"])
        say_launch(plan.study, settings)
    print(f"candidates in {directory}", file=sys.stderr)
    if outcome.exit_code not in (EXIT_OK, EXIT_SWEEP_FAILED):
        print("stopped; run the same command again to resume", file=sys.stderr)
    if outcome.exit_code != EXIT_OK:
        return outcome.exit_code
    return EXIT_OK if answer.cheapest is not None else EXIT_THRESHOLD


def _plot(answer: Answer, name: str, path: Path, force: bool) -> None:
    from kvcache_sim.base.output import write_new
    from kvcache_sim.extras.study.sizing.text import draw
    from kvcache_sim.report.picture import NothingToDraw
    from kvcache_sim.report.plotting import encoded

    drawn = draw(answer, name)
    if isinstance(drawn, NothingToDraw):
        print(f"nothing to draw: {drawn.reason}", file=sys.stderr)
    else:
        write_new(path, encoded(drawn, path.suffix), force)
        print(f"wrote {path}", file=sys.stderr)
