"""``kvsim trace anonymise``: no names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.cli.trace.transform import Read, transform

if TYPE_CHECKING:
    from kvcache_sim.workload.trace import Trace


@transform
def command(read: Read) -> Trace:
    """Number ids and sessions by first appearance, start at time 0, drop unknown members.

    Lengths, sharing and distances of time stay: a simulation of the result is the same.

    \b
    Examples:
      kvsim trace anonymise mine.jsonl -o public.jsonl
    """
    from kvcache_sim.workload.toolbox.transforms import anonymise

    return anonymise(read())
