"""Requests of agents as columns: each in its session, after the requests that it waits for."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import TraceProblem
from kvcache_sim.base.units import LAST_NS
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, OPEN_LOOP

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns

MOST_TOKENS = 2**31 - 1


class AgentRequest(NamedTuple):
    """A request: its arrival if it waits for no other request (ns), its tokens, blocks and session."""

    at_ns: int
    input_tokens: int
    output_tokens: int
    ids: Sequence[Hashable]
    session: str | None
    #: Delay after all awaited requests (ns); without effect if there are none.
    after_ns: int = 0
    #: Members without a column, as JSON without braces.
    extra: str = ""


class RequestRows:
    """Requests collected into the columns of a trace, those of a session in the order of its turns."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.arrival, self.inputs, self.outputs, self.think = (array("q") for _ in range(4))
        self.offsets, self.ids = array("q", [0]), array("I")
        self.session, self.turn = array("i"), array("i")
        self.dense: dict[Hashable, int] = {}
        self.extra: list[str] = []
        self.session_names: list[str] = []
        self._sessions: dict[str, int] = {}
        self._turns: list[int] = []

    def session_turn(self, name: str | None) -> tuple[int, int]:
        """Return the session of a name by number, and its next turn; NO_SESSION without a name."""
        if name is None:
            return NO_SESSION, 0
        session = self._sessions.setdefault(name, len(self._sessions))
        if session == len(self._turns):
            self.session_names.append(name)
            self._turns.append(0)
        self._turns[session] += 1
        return session, self._turns[session] - 1

    def append(self, request: AgentRequest, session: int, turn: int) -> None:
        """Add a request as turn ``turn`` of a session by number, or without a session."""
        self.arrival.append(request.at_ns)
        self.think.append(request.after_ns)
        self.inputs.append(request.input_tokens)
        self.outputs.append(request.output_tokens)
        self.ids.extend(self.dense.setdefault(block, len(self.dense)) for block in request.ids)
        self.offsets.append(len(self.ids))
        self.extra.append(request.extra)
        self.session.append(session)
        self.turn.append(turn)

    def gathered(self, id_names: NDArray[np.uint64] | list[str] | list[int]) -> RawColumns:
        """Return the columns; ``id_names`` are the original ids, in order of their first appearance."""
        turn = np.array(self.turn, np.int32)
        empty = np.empty(0, np.int64)
        return {
            "arrival_ns": np.array(self.arrival, np.int64),
            "input_tokens": np.array(self.inputs, np.int64),
            "output_tokens": np.array(self.outputs, np.int64),
            "id_offsets": np.array(self.offsets, np.int64),
            "block_ids": np.array(self.ids, np.uint32),
            "block_size": self.block_size,
            "session": np.array(self.session, np.int32),
            "turn": turn,
            "think_ns": np.array(self.think, np.int64),
            "is_conversational_turn": turn > 0,
            "after": np.empty(0, np.int32),
            "history_tokens": empty,
            "priority": empty,
            "named_tokens": empty,
            "abort_after_ns": empty,
            "new_input_only": False,
            "id_names": id_names,
            "session_names": self.session_names,
            "extra": self.extra if any(self.extra) else [],
            "problems": [],
            "problem_counts": [],
            "findings": [],
            "lines": 0,
            "bytes": 0,
            "unordered": False,
        }


class AgentRows(RequestRows):
    """Requests of agents, each in its session; ``waits`` is by request and may be filled in later."""

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self.waits: list[list[int]] = []

    def add(self, request: AgentRequest, waits: list[int]) -> int:
        """Add a request that waits for others by number; return its own number."""
        self.append(request, *self.session_turn(request.session))
        self.waits.append(waits)
        return len(self.waits) - 1

    def columns(self, id_names: NDArray[np.uint64] | list[str] | list[int], lines: int) -> RawColumns:
        """Return the columns, with the requests that each waits for."""
        columns = self.gathered(id_names)
        columns["after"], columns["also_after"] = waiting(self.waits)
        columns["think_ns"][columns["after"] == NO_REQUEST] = OPEN_LOOP
        opens = columns["arrival_ns"][columns["think_ns"] == OPEN_LOOP]
        columns["lines"], columns["unordered"] = lines, bool((np.diff(opens) < 0).any())
        return columns


def waiting(waits: Sequence[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the first request that each waits for, and the others as pairs (``Trace.also_after``)."""
    after = np.full(len(waits), NO_REQUEST, np.int32)
    others = []
    for request, numbers in enumerate(waits):
        for position, number in enumerate(numbers):
            if position == 0:
                after[request] = number
            else:
                others.append((request, number))
    return after, np.array(others, np.int32).reshape(-1, 2)


_Key = TypeVar("_Key", bound=Hashable)


def in_turn(starts: Mapping[_Key, Collection[_Key]]) -> Iterator[_Key]:
    """Yield each key after all keys that start it; keys of a cycle, and their successors, are left out."""
    missing = Counter(key for started in starts.values() for key in started)
    free = [key for key in starts if not missing[key]]
    for key in free:  # grows during the iteration
        yield key
        missing.subtract(starts[key])
        free += [started for started in starts[key] if not missing[started]]


def problem(line: int, member: str, got: object, expected: str) -> TraceProblem:
    """Return the error of a member's value."""
    return TraceProblem(line, 0, "value", f"{member} cannot be used", str(got)[:40], expected, "")


def whole(line: int, row: dict[str, Any], names: tuple[str, ...], least: int) -> int:
    """Return the first existing member of ``names`` as a count; raises TraceProblem."""
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if type(value) is not int or not least <= value <= MOST_TOKENS:
        raise problem(line, names[0], value, f"an integer from {least} on")
    return value


def time_ns(line: int, row: dict[str, Any], names: tuple[str, ...], unit_ns: int) -> int:
    """Return a member that is a time in units of ``unit_ns``, 0 if there is none; raises TraceProblem."""
    value = next((row[name] for name in names if row.get(name) is not None), 0)
    if type(value) not in (int, float) or not 0 <= value * unit_ns <= LAST_NS:
        unit = "seconds" if unit_ns == 10**9 else "milliseconds"
        raise problem(line, names[0], value, f"{unit} from 0 on")
    return round(value * unit_ns)


def block_ids(line: int, row: dict[str, Any], tokens: int, block_size: int) -> list[int]:
    """Return the ids of a prompt's blocks, the last possibly partial or without id; raises TraceProblem."""
    ids = row.get("hash_ids")
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        raise problem(line, "hash_ids", ids, "a list of integers")
    if not tokens // block_size <= len(ids) <= -(-tokens // block_size):
        raise problem(line, "hash_ids", len(ids), f"one a block of {block_size} of {tokens} tokens")
    return ids
