"""What the rows of a trace say of the blocks that their requests leave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kvcache_sim.errors import TraceError, UsageError
from kvcache_sim.units import NS_PER_S
from kvcache_sim.workload.trace import NOT_TOLD, Trace

#: What a row may say; a number is a time to live in seconds.
NOTHING, CLOSE, DEMOTE = 0, 1, 2
_SAID = {None: NOTHING, "close": CLOSE, "demote": DEMOTE}


def with_retention(trace: Trace, member: str, tool: str, ttl_s: Mapping[str, float]) -> Trace:
    """Return the trace with the hints of its rows, from ``Trace.extra``.

    ``member``: ``close``, ``demote`` or seconds; ``tool``: the tool that a request ends with, by whose name
    ``ttl_s`` has a time to live where the row itself says none. Raises UsageError where no row has either
    member, TraceError for another value. Cost: each row's members are read as JSON.
    """
    rows = [json.loads(f"{{{text}}}") if text else {} for text in trace.extra] or [{}] * len(trace)
    if all(row.get(member) is None and row.get(tool) not in ttl_s for row in rows):
        raise UsageError(
            f"no row has the member {member!r}, or a tool of retention.ttl_s", where=trace.source
        )
    hints, live_ns = np.zeros(len(trace), np.int8), np.full(len(trace), NOT_TOLD, np.int64)
    for number, row in enumerate(rows):
        value = row.get(member)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9:
            live_ns[number] = round(value * NS_PER_S)
        elif value is None or value in ("close", "demote"):
            hints[number] = _SAID[value]
            by_tool = ttl_s.get(str(row.get(tool)))
            live_ns[number] = NOT_TOLD if by_tool is None else round(by_tool * NS_PER_S)
        else:
            raise TraceError(
                f"{member} of request {number} is no hint",
                where=trace.source,
                got=json.dumps(value)[:60],
                expected="close, demote or seconds",
            )
    return replace(trace, retention=hints, live_ns=live_ns)
