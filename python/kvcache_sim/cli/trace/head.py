"""``kvsim trace head``: the first requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.cli.trace.transform import Read, transform

if TYPE_CHECKING:
    from kvcache_sim.workload.trace import Trace


@transform
def command(
    read: Read,
    requests: Annotated[int, typer.Option("-n", help="how many requests")] = 10,
) -> Trace:
    """Write the first requests of a trace; they are its own rows, ids included.

    \b
    Examples:
      kvsim trace head conversation_trace.jsonl -n 1000 -o first.jsonl
    """
    from kvcache_sim.workload.toolbox.transforms import head

    return head(read(), requests)
