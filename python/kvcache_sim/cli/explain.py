"""``kvsim explain``: why a run came out as it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="run directory")],
    request: Annotated[
        int | None, typer.Option("--request", metavar="ID", help="tell one request's story")
    ] = None,
    output_format: Annotated[Literal["text", "json"], typer.Option("--format")] = "text",
) -> None:
    """Say why the hit rate is what it is, what TTFT is made of, and what did not matter.

    \b
    Examples:
      kvsim explain runs/1-quickstart-3fa9c1
      kvsim explain runs/1-quickstart-3fa9c1 --request 4711
    """
    from kvcache_sim.report.explain.case import Case
    from kvcache_sim.report.explain.sentences import explain as sentences
    from kvcache_sim.report.explain.story import story
    from kvcache_sim.report.finished import open_runs
    from kvcache_sim.report.trace_of import find_trace

    (opened,) = open_runs([run])
    if request is not None:
        moments, reasons = story(opened, request)
        if output_format == "json":
            events = [{"since_arrival_ns": m.since_arrival_ns, "text": m.text} for m in moments]
            print(json.dumps({"request": request, "events": events, "reasons": reasons}, indent=2))
            return
        print(f"Request {request}")
        print("\n".join(f"  {m.since_arrival_ns / 1e6:>12,.3f} ms  {m.text}" for m in moments))
        print("\n".join(reasons))
        return
    if reason := find_trace(opened):
        typer.echo(f"warning: {reason}", err=True)
    said = sentences(Case(opened))
    if output_format == "json":
        print(json.dumps(said, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(f"{topic}\n  " + "\n  ".join(group.values()) for topic, group in said.items()))
