"""``kvsim trace repeat``: several times over."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    times: Annotated[int, typer.Option("-n", "--times", help="how often")] = 2,
    gap: Annotated[str, typer.Option(help="time between the last arrival and the next copy")] = "1s",
    out: options.Output = "-",
    force: options.Force = False,
    block_size: options.BlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Write a trace several times over, each copy with blocks and sessions of its own.

    \b
    Examples:
      kvsim trace repeat conversation_trace.jsonl -n 3 --gap 3s -o three.jsonl
    """
    from kvcache_sim.units import parse_time_ns
    from kvcache_sim.workload.toolbox.repeat import repeat

    gap_ns = parse_time_ns(gap)
    trace_read = options.load(trace, options.settings(block_size, trace_format, on_bad_row, time_order))
    options.save(repeat(trace_read, times, gap_ns), out, force)
