"""``kvsim trace rechunk``: smaller blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.cli.trace.transform import Read, transform

if TYPE_CHECKING:
    from kvcache_sim.workload.trace import Trace


@transform
def command(
    read: Read,
    to: Annotated[int, typer.Option("--to", help="new tokens an id, a divisor of the old")] = 16,
) -> Trace:
    """Write a trace in smaller blocks, each old block a run of new ones.

    \b
    Examples:
      kvsim trace rechunk conversation_trace.jsonl --to 16 -o b16.jsonl
    """
    from kvcache_sim.workload.toolbox.transforms import rechunk

    return rechunk(read(), to)
