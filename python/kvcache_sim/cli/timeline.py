"""``kvsim timeline``: a run as a trace that Perfetto opens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.notices import warn
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def timeline(
    run: Annotated[Path, Argument(metavar="RUN", help="run directory")],
    output: Annotated[Path, Option("-o", "--output", help="file to write")] = Path("timeline.json.gz"),
    window: Annotated[str, Option(help="such as 10s..20s", metavar="FROM..TO")] = "",
    trace_requests: Annotated[int | None, Option(min=1, help="draw at most so many requests")] = None,
    force: Annotated[bool, "overwrite the file"] = False,
) -> None:
    """Write a run as Chrome-trace JSON (steps, channels, tiers, requests) for ui.perfetto.dev.

    \b
    Examples:
      kvsim simulate -c preset:quickstart --record all -o runs/q && kvsim timeline runs/q
      kvsim timeline runs/q --window 10s..20s -o ten-seconds.json.gz
    """
    from kvcache_sim.base.output import write_new
    from kvcache_sim.report.finished import open_runs
    from kvcache_sim.report.timeline.build import Selection
    from kvcache_sim.report.timeline.build import timeline as build

    (opened,) = open_runs([run])
    selection = Selection(_window(window), trace_requests)
    data = build(opened, selection, warn)
    write_new(output, data, force)
    typer.echo(f"wrote {output}; open it in https://ui.perfetto.dev", err=True)


def _window(text: str) -> tuple[int, int] | None:
    from kvcache_sim.base.units import parse_time_ns

    if not text:
        return None
    start, dots, end = text.partition("..")
    low, high = parse_time_ns(start or "0s"), parse_time_ns(end) if end else 2**62
    if not dots or low >= high:
        raise UsageError(
            "not a window", where="--window", got=repr(text), expected="FROM..TO, such as 10s..20s"
        )
    return low, high
