"""``kvsim trace stats``: statistics of a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.trace import options


def command(
    trace: options.TraceFile,
    output_format: Annotated[Literal["table", "json"], Option("--format")] = "table",
    picture: Annotated[Path | None, "also draw the working set over time: .svg"] = None,
    force: options.Force = False,
    *,
    rows: options.Rows,
) -> None:
    """Print lengths, arrivals, sharing, reuse, and the hit rate of an unbounded cache.

    \b
    Examples:
      kvsim trace stats conversation_trace.jsonl
      kvsim trace stats conversation_trace.jsonl --format json
      kvsim trace stats conversation_trace.jsonl --picture working_set.svg
    """
    from kvcache_sim.workload.toolbox.stats import trace_stats

    stats = trace_stats(rows.load(trace))
    if output_format == "json":
        print(json.dumps(stats, indent=2))
    else:
        from kvcache_sim.workload.toolbox.stats import table

        print(table(stats))
    if picture is not None:
        from kvcache_sim.workload.toolbox.stats import working_set_svg
        from kvcache_sim.workload.toolbox.write import write_lines

        write_lines(picture, [working_set_svg(stats)], force)
