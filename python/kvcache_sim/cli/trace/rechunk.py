"""``kvsim trace rechunk``: smaller blocks."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    to: Annotated[int, typer.Option("--to", help="new tokens an id, a divisor of the old")] = 16,
    out: options.Output = "-",
    force: options.Force = False,
    block_size: options.BlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Write a trace in smaller blocks, each old block a run of new ones.

    \b
    Examples:
      kvsim trace rechunk conversation_trace.jsonl --to 16 -o b16.jsonl
    """
    from kvcache_sim.workload.toolbox.rechunk import rechunk

    trace_read = options.load(trace, options.settings(block_size, trace_format, on_bad_row, time_order))
    options.save(rechunk(trace_read, to), out, force)
