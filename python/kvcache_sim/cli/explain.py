"""``kvsim explain``: the main causes of a run's results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.notices import warn
from kvcache_sim.cli.run_options import RUN_PLUGINS, refuse_idle
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.report.finished import FinishedRun

app = verb_app()

#: Requests listed for --between without --worst.
_MOST = 10


class Topic(Value):
    """The part of a run that is explained; without one, the run as a whole."""

    request: Annotated[int | None, Option(metavar="ID", help="list the events of one request")] = None
    session: Annotated[str | None, Option(metavar="S", help="the cached state of a session, by turn")] = None
    prefixes: Annotated[bool, "the global prefix store's entries at the end of the run"] = False
    worst: Annotated[int | None, Option(metavar="N", min=1, help="the N longest TTFTs, and the spike")] = None
    sensitivity: Annotated[bool, "run again within stated errors: changes, decisive assumptions"] = False
    regret: Annotated[bool, "run again: the cost of each routing choice against the best one"] = False
    between: Annotated[
        tuple[str, str] | None,
        Option(metavar="T1 T2", help="only requests that arrive then, such as 10s 20s"),
    ] = None
    checks: Annotated[bool, Option("--check", help="run each claim's experiment again")] = False
    plugins: Annotated[bool, RUN_PLUGINS] = False

    @property
    def longest(self) -> bool:
        """True for requests of long TTFT."""
        return self.worst is not None or self.between is not None

    def check(self) -> None:
        """Raise UsageError for two topics, and for plug-ins without a run of them."""
        asked = {
            "--request": self.request is not None,
            "--session": self.session is not None,
            "--prefixes": self.prefixes,
            "--sensitivity": self.sensitivity,
            "--regret": self.regret,
            "--check": self.checks,
            "--worst, --between": self.longest,
        }
        if sum(asked.values()) > 1:
            raise UsageError("one at a time", where=", ".join(name for name, given in asked.items() if given))
        if not (self.sensitivity or self.regret):
            refuse_idle("without --sensitivity or --regret", plugins=self.plugins)


Run = Annotated[Path, Argument(metavar="RUN", help="run directory")]
Format = Annotated[Literal["text", "json"], Option("--format")]


@app.command()
def explain(run: Run, topic: Topic, output_format: Format = "text") -> None:
    """Explain the hit rate, the parts of TTFT, and the settings that had no effect.

    \b
    Examples:
      kvsim explain runs/1-quickstart-3fa9c1
      kvsim explain runs/1-quickstart-3fa9c1 --request 4711
      kvsim explain runs/1-quickstart-3fa9c1 --session 17
      kvsim explain runs/1-quickstart-3fa9c1 --worst 10 --between 30s 60s
      kvsim explain runs/1-quickstart-3fa9c1 --sensitivity
      kvsim explain runs/1-quickstart-3fa9c1 --regret
      kvsim explain runs/1-quickstart-3fa9c1 --check
    """
    from kvcache_sim.report.finished import open_runs

    topic.check()
    (opened,) = open_runs([run])
    as_json = output_format == "json"
    if topic.longest:
        from kvcache_sim.report.explain.worst_text import worst_requests

        window = None if topic.between is None else _window(*topic.between)
        print(worst_requests(opened, _MOST if topic.worst is None else topic.worst, window, output_format))
    elif topic.sensitivity:
        from kvcache_sim.extras.study.sensitivity.moves import sensitivity
        from kvcache_sim.extras.study.sensitivity.text import sensitivity_json, sensitivity_text

        moved = sensitivity(opened, lambda what: typer.echo(f"again: {what}", err=True), topic.plugins)
        print(json.dumps(sensitivity_json(moved), indent=2) if as_json else sensitivity_text(moved))
    elif topic.checks:
        from kvcache_sim.report.explain.case import Case
        from kvcache_sim.report.explain.claims import check, claims_text
        from kvcache_sim.report.finished import find_trace

        if missing := find_trace(opened):
            warn(missing)
        checked = list(check(Case(opened)))
        print(json.dumps([one._asdict() for one in checked], indent=2) if as_json else claims_text(checked))
    elif topic.regret:
        _print_regret(opened, topic.plugins, as_json)
    elif topic.session is not None:
        from kvcache_sim.report.explain.session_cache import session_json, session_text, session_turns

        turns = session_turns(opened, topic.session)
        document = session_json(topic.session, turns)
        print(_dumped(document) if as_json else session_text(topic.session, turns))
    elif topic.prefixes:
        from kvcache_sim.report.explain.prefixes import prefix_rows, prefixes_text

        rows = prefix_rows(opened)
        print(_dumped({"prefixes": rows}) if as_json else prefixes_text(rows))
    elif topic.request is not None:
        _print_request(opened, topic.request, as_json)
    else:
        from kvcache_sim.api.explaining import explain as explain_run
        from kvcache_sim.report.explain.certainty import TOPIC, missing_intervals

        said = explain_run(run)
        if lacking := missing_intervals(opened):
            said[TOPIC] |= lacking
        if said.missing:
            warn(said.missing)
        print(_dumped(said) if as_json else said)


def _dumped(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def _print_regret(opened: FinishedRun, plugins: bool, as_json: bool) -> None:
    from kvcache_sim.report.explain.case import Case
    from kvcache_sim.report.routing_regret import regret_text, routing_regret

    settings = Case(opened).scenario.settings
    routed = sum(machine.role != "decode" for machine in settings.machines)
    if routed < 2:
        raise UsageError("no choice to regret", "--regret", got="one machine", expected="several")
    sums = routing_regret(opened, plugins)
    print(json.dumps(sums, indent=2) if as_json else regret_text(sums, settings.router.policy, routed))


def _print_request(opened: FinishedRun, request: int, as_json: bool) -> None:
    from kvcache_sim.report.explain.explanation import explanation
    from kvcache_sim.report.plain_table import plain_sentences

    moments, reasons = explanation(opened, request)
    if as_json:
        events = [{"since_arrival_ns": m.since_arrival_ns, "text": m.text} for m in moments]
        print(json.dumps({"request": request, "events": events, "reasons": reasons}, indent=2))
        return
    print(f"Request {request}")
    print("\n".join(f"  {m.since_arrival_ns / 1e6:>12,.3f} ms  {m.text}" for m in moments))
    print(plain_sentences(reasons))


def _window(since: str, until: str) -> tuple[int, int]:
    """Return the two times of ``--between`` in ns; raises ``UsageError`` where the second is not later."""
    from kvcache_sim.base.units import parse_time_ns

    low, high = parse_time_ns(since), parse_time_ns(until)
    if low >= high:
        expected = "a time and a later one, such as 10s 20s"
        raise UsageError("not a time window", where="--between", got=f"{since} {until}", expected=expected)
    return low, high
