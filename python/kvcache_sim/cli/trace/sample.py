"""``kvsim trace sample``: part of a trace, its reuse kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.cli.trace.transform import Read, transform

if TYPE_CHECKING:
    from kvcache_sim.workload.trace import Trace


@transform
def command(
    read: Read,
    fraction: Annotated[float, typer.Option(help="share of the sessions or prefix groups to keep")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="chooses them")] = 0,
) -> Trace:
    """Write whole sessions, or whole groups of prompts that share a prefix.

    \b
    Examples:
      kvsim trace sample conversation_trace.jsonl --fraction 0.1 --seed 1 -o tenth.jsonl
    """
    from kvcache_sim.workload.toolbox.sample import sample

    return sample(read(), fraction, seed)
