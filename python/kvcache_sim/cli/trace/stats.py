"""``kvsim trace stats``: statistics of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    output_format: Annotated[Literal["table", "json"], typer.Option("--format")] = "table",
    picture: Annotated[Path | None, typer.Option(help="also draw the working set over time: .svg")] = None,
    force: options.Force = False,
    trace_block_size: options.TraceBlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Print lengths, arrivals, sharing, reuse, and the hit rate of an unbounded cache.

    \b
    Examples:
      kvsim trace stats conversation_trace.jsonl
      kvsim trace stats conversation_trace.jsonl --format json
      kvsim trace stats conversation_trace.jsonl --picture working_set.svg
    """
    from kvcache_sim.workload.toolbox.stats import trace_stats

    stats = trace_stats(
        options.load(trace, options.settings(trace_block_size, trace_format, on_bad_row, time_order))
    )
    if output_format == "json":
        print(json.dumps(stats, indent=2))
    else:
        from kvcache_sim.workload.toolbox.stats import table

        print(table(stats))
    if picture is not None:
        from kvcache_sim.workload.toolbox.stats import working_set_svg
        from kvcache_sim.workload.toolbox.write import write_lines

        write_lines(picture, [working_set_svg(stats)], force)
