"""``kvsim explain``: the main causes of a run's results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.notices import warn
from kvcache_sim.cli.run_options import RUN_PLUGINS, refuse_idle
from kvcache_sim.cli.verb import verb_app

app = verb_app()

#: Requests listed for --between without --worst.
_MOST = 10


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="run directory")],
    request: Annotated[
        int | None, typer.Option("--request", metavar="ID", help="list the events of one request")
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="S", help="the cached state of a session, by turn")
    ] = None,
    prefixes: Annotated[
        bool, typer.Option("--prefixes", help="the global prefix store's entries at the end of the run")
    ] = False,
    worst: Annotated[
        int | None, typer.Option("--worst", metavar="N", min=1, help="the N longest TTFTs, and the spike")
    ] = None,
    sensitive: Annotated[
        bool,
        typer.Option("--sensitivity", help="run again within stated errors: changes, decisive assumptions"),
    ] = False,
    regret: Annotated[
        bool, typer.Option("--regret", help="run again: the cost of each routing choice against the best one")
    ] = False,
    between: Annotated[
        tuple[str, str] | None,
        typer.Option("--between", metavar="T1 T2", help="only requests that arrive then, such as 10s 20s"),
    ] = None,
    plugins: Annotated[bool, typer.Option("--plugins", help=RUN_PLUGINS)] = False,
    output_format: Annotated[Literal["text", "json"], typer.Option("--format")] = "text",
) -> None:
    """Explain the hit rate, the parts of TTFT, and the settings that had no effect.

    \b
    Examples:
      kvsim explain runs/1-quickstart-3fa9c1
      kvsim explain runs/1-quickstart-3fa9c1 --request 4711
      kvsim explain runs/1-quickstart-3fa9c1 --session 17
      kvsim explain runs/1-quickstart-3fa9c1 --worst 10 --between 30s 60s
      kvsim explain runs/1-quickstart-3fa9c1 --sensitivity
      kvsim explain runs/1-quickstart-3fa9c1 --regret
    """
    from kvcache_sim.api.explaining import explain as explain_run
    from kvcache_sim.report.explain.certainty import TOPIC, missing_intervals
    from kvcache_sim.report.explain.explanation import explanation
    from kvcache_sim.report.explain.prefixes import prefix_rows, prefixes_text
    from kvcache_sim.report.explain.session_cache import session_json, session_text, session_turns
    from kvcache_sim.report.explain.worst_text import worst_requests
    from kvcache_sim.report.finished import open_runs
    from kvcache_sim.report.plain_table import plain_sentences

    longest = worst is not None or between is not None
    asked = {
        "--request": request is not None,
        "--session": session is not None,
        "--prefixes": prefixes,
        "--sensitivity": sensitive,
        "--regret": regret,
        "--worst, --between": longest,
    }
    if sum(asked.values()) > 1:
        raise UsageError("one at a time", where=", ".join(name for name, given in asked.items() if given))
    if not (sensitive or regret):
        refuse_idle("without --sensitivity or --regret", plugins=plugins)
    (opened,) = open_runs([run])
    if longest:
        print(
            worst_requests(
                opened,
                _MOST if worst is None else worst,
                None if between is None else _window(*between),
                output_format,
            )
        )
        return
    if sensitive:
        from kvcache_sim.extras.study.sensitivity.moves import sensitivity
        from kvcache_sim.extras.study.sensitivity.text import sensitivity_json, sensitivity_text

        moved = sensitivity(opened, lambda what: typer.echo(f"again: {what}", err=True), plugins)
        as_json = output_format == "json"
        print(json.dumps(sensitivity_json(moved), indent=2) if as_json else sensitivity_text(moved))
        return
    if regret:
        from kvcache_sim.report.explain.case import Case
        from kvcache_sim.report.routing_regret import regret_text, routing_regret

        settings = Case(opened).scenario.settings
        routed = sum(machine.role != "decode" for machine in settings.machines)
        if routed < 2:
            raise UsageError("no choice to regret", "--regret", got="one machine", expected="several")
        sums = routing_regret(opened, plugins)
        as_text = regret_text(sums, settings.router.policy, routed)
        print(json.dumps(sums, indent=2) if output_format == "json" else as_text)
        return
    if session is not None:
        turns = session_turns(opened, session)
        if output_format == "json":
            print(json.dumps(session_json(session, turns), indent=2, ensure_ascii=False))
        else:
            print(session_text(session, turns))
        return
    if prefixes:
        rows = prefix_rows(opened)
        if output_format == "json":
            print(json.dumps({"prefixes": rows}, indent=2, ensure_ascii=False))
        else:
            print(prefixes_text(rows))
        return
    if request is not None:
        moments, reasons = explanation(opened, request)
        if output_format == "json":
            events = [{"since_arrival_ns": m.since_arrival_ns, "text": m.text} for m in moments]
            print(json.dumps({"request": request, "events": events, "reasons": reasons}, indent=2))
            return
        print(f"Request {request}")
        print("\n".join(f"  {m.since_arrival_ns / 1e6:>12,.3f} ms  {m.text}" for m in moments))
        print(plain_sentences(reasons))
        return
    said = explain_run(run)
    if lacking := missing_intervals(opened):
        said[TOPIC] |= lacking
    if said.missing:
        warn(said.missing)
    print(json.dumps(said, indent=2, ensure_ascii=False) if output_format == "json" else said)


def _window(since: str, until: str) -> tuple[int, int]:
    """Return the two times of ``--between`` in ns; raises ``UsageError`` where the second is not later."""
    from kvcache_sim.base.units import parse_time_ns

    low, high = parse_time_ns(since), parse_time_ns(until)
    if low >= high:
        expected = "a time and a later one, such as 10s 20s"
        raise UsageError("not a time window", where="--between", got=f"{since} {until}", expected=expected)
    return low, high
