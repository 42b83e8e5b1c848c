"""Dynamo's agentic Mooncake rows: requests by name that wait for others, and tool calls between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.readers.agent_rows import (
    AgentRequest,
    AgentRows,
    block_ids,
    in_turn,
    problem,
    time_ns,
    whole,
)
from kvcache_sim.workload.readers.format import SIGNS, TraceFormat
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

BLOCK_SIZE = 512


class _Names:
    """Requests by name, and the names that each waits for, which may occur later in the file."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.lines: list[int] = []
        self.waits: list[list[str]] = []

    def add(self, line: int, row: dict[str, Any]) -> None:
        """Record a row's name and waits; raises ``TraceProblem``."""
        name = row.get("request_id")
        if not isinstance(name, str) or name in self.numbers:
            raise problem(line, "request_id", name, "a text that no other row has")
        waits = row.get("wait_for") or []
        if not isinstance(waits, list) or not all(isinstance(other, str) for other in waits):
            raise problem(line, "wait_for", waits, "a list of request ids")
        self.numbers[name] = len(self.lines)
        self.lines.append(line)
        self.waits.append(list(dict.fromkeys(waits)))

    def numbered(self) -> list[list[int]]:
        """Return by request the numbers that it waits for; raises ``TraceProblem``."""
        for line, names in zip(self.lines, self.waits, strict=True):
            for name in names:
                if name not in self.numbers:
                    raise problem(line, "wait_for", name, "the request_id of a row")
        waits = [[self.numbers[name] for name in names] for names in self.waits]
        starts: dict[int, list[int]] = {request: [] for request in range(len(waits))}
        for request, numbers in enumerate(waits):
            for number in numbers:
                starts[number].append(request)
        stuck = min(starts.keys() - set(in_turn(starts)), default=None)
        if stuck is not None:
            raise problem(self.lines[stuck], "wait_for", self.waits[stuck][0], "no circle of waits")
        return waits


def _request(line: int, row: dict[str, Any], block_size: int) -> AgentRequest:
    tokens = whole(line, row, ("input_length", "input_tokens"), 1)
    session = row.get("session_id")
    return AgentRequest(
        time_ns(line, row, ("timestamp", "created_time"), NS_PER_MS),
        tokens,
        whole(line, row, ("output_length", "output_tokens"), 0),
        block_ids(line, row, tokens, block_size),
        session if isinstance(session, str) else None,
        time_ns(line, row, ("delay", "delay_ms"), NS_PER_MS)
        + time_ns(line, row, ("tool_wait_ms",), NS_PER_MS),
    )


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    rows, names = AgentRows(settings.block_size or BLOCK_SIZE), _Names()
    line = 0
    for line, value in objects(source):
        if not isinstance(value, dict):
            raise problem(line, "row", value, "an object of members")
        names.add(line, value)
        rows.add(_request(line, value, rows.block_size), [])
    rows.waits = names.numbered()
    ids: list[Any] = list(rows.dense)
    fits = all(0 <= block < 1 << 64 for block in ids)
    return rows.columns(np.array(ids, np.uint64) if fits else ids, line)


FORMAT = TraceFormat(
    "dynamo-agentic",
    "JSON lines: request_id, input_length, output_length, hash_ids, wait_for, delay, tool_wait_ms (ms)",
    SIGNS["dynamo-agentic"],
    _read,
    BLOCK_SIZE,
)
