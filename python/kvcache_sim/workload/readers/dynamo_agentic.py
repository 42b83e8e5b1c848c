"""Dynamo's agentic Mooncake rows: requests by name that wait for others, and tool calls between them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import TraceProblem
from kvcache_sim.units import LAST_NS, NS_PER_MS
from kvcache_sim.workload.readers.format import TraceFormat, first_row
from kvcache_sim.workload.readers.json_stream import objects
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, OPEN_LOOP

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

BLOCK_SIZE = 512
_MOST_TOKENS = 2**31 - 1
#: Members that only this format has.
_OWN = {"wait_for", "tool_wait_ms", "tool_events", "branches"}


def _detect(head: bytes) -> bool:
    row = first_row(head)
    if row is None or "request_id" not in row or "hash_ids" not in row:
        return False
    return bool(_OWN & row.keys()) or any(f'"{name}"'.encode() in head for name in _OWN)


class _Rows:
    """Rows as columns, their names numbered as they come."""

    def __init__(self) -> None:
        self.arrival, self.inputs, self.outputs, self.think = (array("q") for _ in range(4))
        self.offsets, self.ids = array("q", [0]), array("I")
        self.session, self.turn = array("i"), array("i")
        self.numbers: dict[str, int] = {}
        self.lines: list[int] = []
        self.waits: list[list[str]] = []
        self.sessions: dict[str, int] = {}
        self.turns: list[int] = []
        self.dense: dict[int, int] = {}

    def add(self, line: int, row: dict[str, Any], block_size: int) -> None:
        """Add one row; raises ``TraceProblem``."""
        name = row.get("request_id")
        if not isinstance(name, str) or name in self.numbers:
            raise _problem(line, "request_id", name, "a text that no other row has")
        tokens = _whole(line, row, ("input_length", "input_tokens"), 1)
        output = _whole(line, row, ("output_length", "output_tokens"), 0)
        ids = row.get("hash_ids")
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < 1 << 64 for i in ids):
            raise _problem(line, "hash_ids", ids, "a list of integers from 0 on")
        if not tokens // block_size <= len(ids) <= -(-tokens // block_size):
            raise _problem(line, "hash_ids", len(ids), f"one a block of {block_size} of {tokens} tokens")
        waits = row.get("wait_for") or []
        if not isinstance(waits, list) or not all(isinstance(other, str) for other in waits):
            raise _problem(line, "wait_for", waits, "a list of request ids")
        after_ns = _ns(line, row, ("delay", "delay_ms")) + _ns(line, row, ("tool_wait_ms",))
        starts_ns = _ns(line, row, ("timestamp", "created_time"))
        self.numbers[name] = len(self.lines)
        self.lines.append(line)
        self.waits.append(list(dict.fromkeys(waits)))
        self.arrival.append(starts_ns)
        self.think.append(after_ns if waits else OPEN_LOOP)
        self.inputs.append(tokens)
        self.outputs.append(output)
        self.ids.extend(self.dense.setdefault(i, len(self.dense)) for i in ids)
        self.offsets.append(len(self.ids))
        self._in_session(row.get("session_id"))

    def _in_session(self, name: object) -> None:
        if not isinstance(name, str):
            self.session.append(NO_SESSION)
            self.turn.append(0)
            return
        session = self.sessions.setdefault(name, len(self.sessions))
        if session == len(self.turns):
            self.turns.append(0)
        self.session.append(session)
        self.turn.append(self.turns[session])
        self.turns[session] += 1

    def dependencies(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the first request that each waits for, and the others as pairs; raises ``TraceProblem``."""
        after = np.full(len(self.lines), NO_REQUEST, np.int32)
        others = []
        for request, names in enumerate(self.waits):
            for place, name in enumerate(names):
                if name not in self.numbers:
                    raise _problem(self.lines[request], "wait_for", name, "the request_id of a row")
                if place == 0:
                    after[request] = self.numbers[name]
                else:
                    others.append((request, self.numbers[name]))
        self._refuse_circles()
        return after, np.array(others, np.int32).reshape(-1, 2)

    def _refuse_circles(self) -> None:
        missing = [len(names) for names in self.waits]
        waiting: list[list[int]] = [[] for _ in self.waits]
        for request, names in enumerate(self.waits):
            for name in names:
                waiting[self.numbers[name]].append(request)
        free = [request for request, count in enumerate(missing) if not count]
        for request in free:  # grows while it is walked
            for other in waiting[request]:
                missing[other] -= 1
                if not missing[other]:
                    free.append(other)
        if len(free) < len(missing):
            stuck = next(request for request, count in enumerate(missing) if count)
            raise _problem(self.lines[stuck], "wait_for", self.waits[stuck][0], "no circle of waits")


def _problem(line: int, member: str, got: object, expected: str) -> TraceProblem:
    return TraceProblem(line, 0, "value", f"{member} cannot be used", str(got)[:40], expected, "")


def _whole(line: int, row: dict[str, Any], names: tuple[str, ...], least: int) -> int:
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if type(value) is not int or not least <= value <= _MOST_TOKENS:
        raise _problem(line, names[0], value, f"an integer from {least} on")
    return value


def _ns(line: int, row: dict[str, Any], names: tuple[str, ...]) -> int:
    value = next((row[name] for name in names if row.get(name) is not None), 0)
    if type(value) not in (int, float) or not 0 <= value * NS_PER_MS <= LAST_NS:
        raise _problem(line, names[0], value, "milliseconds from 0 on")
    return round(value * NS_PER_MS)


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    rows, block_size = _Rows(), settings.block_size or BLOCK_SIZE
    line = 0
    for line, value in objects(source):
        if not isinstance(value, dict):
            raise _problem(line, "row", value, "an object of members")
        rows.add(line, value, block_size)
    after, also_after = rows.dependencies()
    arrival_ns = np.array(rows.arrival, np.int64)
    opens = arrival_ns[np.array(rows.think, np.int64) == OPEN_LOOP]
    return {
        "arrival_ns": arrival_ns,
        "input_tokens": np.array(rows.inputs, np.int64),
        "output_tokens": np.array(rows.outputs, np.int64),
        "id_offsets": np.array(rows.offsets, np.int64),
        "block_ids": np.array(rows.ids, np.uint32),
        "block_size": block_size,
        "session": np.array(rows.session, np.int32),
        "turn": np.array(rows.turn, np.int32),
        "think_ns": np.array(rows.think, np.int64),
        "is_conversational_turn": np.array(rows.turn, np.int32) > 0,
        "after": after,
        "also_after": also_after,
        "history_tokens": np.empty(0, np.int64),
        "priority": np.empty(0, np.int64),
        "named_tokens": np.empty(0, np.int64),
        "abort_after_ns": np.empty(0, np.int64),
        "new_input_only": False,
        "id_names": np.array(list(rows.dense), np.uint64),
        "session_names": list(rows.sessions),
        "extra": [],
        "problems": [],
        "problem_counts": [],
        "findings": [],
        "lines": line,
        "bytes": 0,
        "unordered": bool((np.diff(opens) < 0).any()),
    }


FORMAT = TraceFormat(
    "dynamo-agentic",
    "JSON lines: request_id, input_length, output_length, hash_ids, wait_for, delay, tool_wait_ms (ms)",
    _detect,
    _read,
    BLOCK_SIZE,
)
