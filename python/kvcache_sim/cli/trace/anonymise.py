"""``kvsim trace anonymise``: no names."""

from __future__ import annotations

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    out: options.Output = "-",
    force: options.Force = False,
    block_size: options.BlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Number ids and sessions by first appearance, start at time 0, drop unknown members.

    Lengths, sharing and distances of time stay: a simulation of the result is the same.

    \b
    Examples:
      kvsim trace anonymise mine.jsonl -o public.jsonl
    """
    from kvcache_sim.workload.toolbox.anonymise import anonymise

    trace_read = options.load(trace, options.settings(block_size, trace_format, on_bad_row, time_order))
    options.save(anonymise(trace_read), out, force)
