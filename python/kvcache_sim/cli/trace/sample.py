"""``kvsim trace sample``: part of a trace, its reuse kept."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    fraction: Annotated[float, typer.Option(help="share of the sessions or prefix groups to keep")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="chooses them")] = 0,
    out: options.Output = "-",
    force: options.Force = False,
    block_size: options.BlockSize = None,
    trace_format: options.TraceFormat = None,
    on_bad_row: options.OnBadRow = "error",
    time_order: options.TimeOrder = "error",
) -> None:
    """Write whole sessions, or whole groups of prompts that share a prefix.

    \b
    Examples:
      kvsim trace sample conversation_trace.jsonl --fraction 0.1 --seed 1 -o tenth.jsonl
    """
    from kvcache_sim.workload.toolbox.sample import sample

    trace_read = options.load(trace, options.settings(block_size, trace_format, on_bad_row, time_order))
    options.save(sample(trace_read, fraction, seed), out, force)
