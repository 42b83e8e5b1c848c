"""``kvsim trace slice``: a window of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.cli.trace.transform import Read, transform

if TYPE_CHECKING:
    from kvcache_sim.workload.trace import Trace


@transform
def command(
    read: Read,
    from_: Annotated[str, typer.Option("--from", help="start of the window, such as 10min")] = "0s",
    to: Annotated[str, typer.Option("--to", help="end of the window, itself outside")] = "1h",
) -> Trace:
    """Write the requests that arrive in a window of time, which becomes time 0.

    Closed-loop requests go with the request they wait for.

    \b
    Examples:
      kvsim trace slice conversation_trace.jsonl --from 10min --to 20min -o window.jsonl
    """
    from kvcache_sim.units import parse_time_ns
    from kvcache_sim.workload.toolbox.transforms import cut

    start, end = parse_time_ns(from_), parse_time_ns(to)
    return cut(read(), start, end)
