"""What the rows of a trace say of the blocks that their requests leave."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from kvcache_sim.errors import TraceError, UsageError
from kvcache_sim.units import NS_PER_S
from kvcache_sim.values import dataclass
from kvcache_sim.workload.trace import NOT_TOLD, Trace

#: What a row may say; a number is a time to live in seconds.
NOTHING, CLOSE, DEMOTE = 0, 1, 2
_SAID = {None: NOTHING, "close": CLOSE, "demote": DEMOTE}
_MOST_S = 1e9


@dataclass(frozen=True, slots=True)
class HintRules:
    """Which members of the rows are hints, and what a tool's name says where a row has none."""

    member: str = "retention"
    #: The tool that a request ends with.
    tool: str = "tool"
    ttl_s: Mapping[str, float] = field(default_factory=dict)


def with_retention(trace: Trace, rules: HintRules) -> Trace:
    """Return the trace with the hints of its rows, from ``Trace.extra``.

    A hint is ``close``, ``demote`` or seconds to live. Raises UsageError where no row has one, TraceError for
    another value. Cost: each row's members are read as JSON.
    """
    rows = [json.loads(f"{{{text}}}") if text else {} for text in trace.extra] or [{}] * len(trace)
    tools = {row.get(rules.tool) for row in rows if isinstance(row.get(rules.tool), str)}
    if all(row.get(rules.member) is None for row in rows) and not tools & rules.ttl_s.keys():
        raise UsageError(
            f"no row has the member {rules.member!r}, or a tool of retention.ttl_s", where=trace.source
        )
    hints = np.zeros(len(trace), np.int8)
    live_ns = np.full(len(trace), NOT_TOLD, np.int64)
    for number, row in enumerate(rows):
        value, tool = row.get(rules.member), str(row.get(rules.tool))
        if _is_time(value):
            live_ns[number] = round(value * NS_PER_S)
        elif value is None:
            if tool in rules.ttl_s:
                live_ns[number] = round(rules.ttl_s[tool] * NS_PER_S)
        elif isinstance(value, str) and value in _SAID:
            hints[number] = _SAID[value]
        else:
            pinned = isinstance(value, dict) and "pin" in value
            raise TraceError(
                f"{rules.member} of request {number} is no hint",
                where=trace.source,
                got=json.dumps(value)[:60],
                expected="close, demote or seconds",
                hint="pins were dropped in 0.2" if pinned else "",
            )
    return replace(trace, retention=hints, live_ns=live_ns)


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST_S
