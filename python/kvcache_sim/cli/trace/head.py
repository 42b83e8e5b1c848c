"""``kvsim trace head``: the first requests."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    requests: Annotated[int, typer.Option("-n", help="how many requests")] = 10,
    out: options.Output = "-",
    force: options.Force = False,
    block_size: options.BlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Write the first requests of a trace; they are its own rows, ids included.

    \b
    Examples:
      kvsim trace head conversation_trace.jsonl -n 1000 -o first.jsonl
    """
    from kvcache_sim.workload.toolbox.head import head

    trace_read = options.load(trace, options.settings(block_size, trace_format, on_bad_row, time_order))
    options.save(head(trace_read, requests), out, force)
