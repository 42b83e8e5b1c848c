"""``kvsim trace merge``: several traces as one."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcache_sim.cli.trace import options


def command(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="trace files")],
    output: options.Output = "-",
    force: options.Force = False,
    trace_block_size: options.TraceBlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Write the requests of several traces in order of arrival; they share no block and no session.

    \b
    Examples:
      kvsim trace merge chat.jsonl tools.jsonl -o both.jsonl
    """
    from kvcache_sim.base.errors import UsageError
    from kvcache_sim.workload.toolbox.transforms import merge

    if traces.count("-") > 1:
        raise UsageError("standard input can be read once", where="-")
    reading = options.settings(trace_block_size, trace_format, on_bad_row, time_order)
    read = [options.load(path, reading) for path in traces]
    options.save(merge(read), output, force)
