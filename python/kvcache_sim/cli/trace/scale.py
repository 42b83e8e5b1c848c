"""``kvsim trace scale``: faster or slower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.cli.trace.transform import Read, transform

if TYPE_CHECKING:
    from kvcache_sim.workload.trace import Trace


@transform
def command(
    read: Read,
    speed: Annotated[str, typer.Option(help="2 is twice as fast; 0.5 and 3/2 are exact, too")] = "1",
) -> Trace:
    """Divide every arrival and think time by a speed, exactly.

    \b
    Examples:
      kvsim trace scale conversation_trace.jsonl --speed 2 -o twice.jsonl
      kvsim trace scale conversation_trace.jsonl --speed 3/2 -o faster.jsonl
    """
    from kvcache_sim.workload.toolbox.transforms import parse_speed, scale

    factor = parse_speed(speed)
    return scale(read(), factor)
