"""``kvsim trace slice``: a window of time."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    from_: Annotated[str, typer.Option("--from", help="start of the window, such as 10min")] = "0s",
    to: Annotated[str, typer.Option("--to", help="end of the window, itself outside")] = "1h",
    out: options.Output = "-",
    force: options.Force = False,
    block_size: options.BlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Write the requests that arrive in a window of time, which becomes time 0.

    Closed-loop requests go with the request they wait for.

    \b
    Examples:
      kvsim trace slice conversation_trace.jsonl --from 10min --to 20min -o window.jsonl
    """
    from kvcache_sim.units import parse_time_ns
    from kvcache_sim.workload.toolbox.cut import cut

    start, end = parse_time_ns(from_), parse_time_ns(to)
    trace_read = options.load(trace, options.settings(block_size, trace_format, on_bad_row, time_order))
    options.save(cut(trace_read, start, end), out, force)
