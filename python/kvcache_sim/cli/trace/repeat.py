"""``kvsim trace repeat``: several times over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.cli.trace.transform import Read, transform

if TYPE_CHECKING:
    from kvcache_sim.workload.trace import Trace


@transform
def command(
    read: Read,
    times: Annotated[int, typer.Option("-n", "--times", help="how often")] = 2,
    gap: Annotated[str, typer.Option(help="time between the last arrival and the next copy")] = "1s",
) -> Trace:
    """Write a trace several times over, each copy with blocks and sessions of its own.

    \b
    Examples:
      kvsim trace repeat conversation_trace.jsonl -n 3 --gap 3s -o three.jsonl
    """
    from kvcache_sim.units import parse_time_ns
    from kvcache_sim.workload.toolbox.transforms import repeat

    gap_ns = parse_time_ns(gap)
    return repeat(read(), times, gap_ns)
