"""``kvsim trace scale``: faster or slower."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    speed: Annotated[str, typer.Option(help="2 is twice as fast; 0.5 and 3/2 are exact, too")] = "1",
    out: options.Output = "-",
    force: options.Force = False,
    block_size: options.BlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Divide every arrival and think time by a speed, exactly.

    \b
    Examples:
      kvsim trace scale conversation_trace.jsonl --speed 2 -o twice.jsonl
      kvsim trace scale conversation_trace.jsonl --speed 3/2 -o faster.jsonl
    """
    from kvcache_sim.workload.toolbox.scale import parse_speed, scale

    factor = parse_speed(speed)
    trace_read = options.load(trace, options.settings(block_size, trace_format, on_bad_row, time_order))
    options.save(scale(trace_read, factor), out, force)
