"""AIPerf's graphs of conversations: turns that fork or spawn other conversations, and wait for them.

Source: aiperf 0.13.0, dataset/loader/dag_jsonl_models.py and dag_jsonl.py. A conversation that several turns
spawn is a template: each spawn creates another copy of it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.readers.agent_rows import problem, time_ns, whole
from kvcache_sim.workload.readers.answers_unknown import ANSWER_TOKENS, columns_without_answers, stand_in
from kvcache_sim.workload.readers.chained_text import TextRows
from kvcache_sim.workload.readers.dag_schema import Line, lines_of
from kvcache_sim.workload.readers.format import SIGNS, TraceFormat
from kvcache_sim.workload.trace import OPEN_LOOP

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

BLOCK_SIZE = 16
#: Nested templates can turn a small file into many requests.
_MOST_REQUESTS = 2_000_000


class _Start(NamedTuple):
    """Start of a conversation: the requests before it, the delay after the last of them, the earlier text."""

    waits: list[int]
    after_ns: int = 0
    said: bytes = b""


class _Graph:
    """Requests of conversations in the order in which they are reached from the root conversations."""

    def __init__(self, rows: TextRows, lines: dict[str, Line]) -> None:
        self._rows, self._lines = rows, lines
        self._made: dict[str, int] = {}
        self.waits: list[list[int]] = []
        self.unlimited = 0

    def run(self, name: str, start: _Start) -> list[int]:
        """Add a conversation and everything that it starts; return the requests whose ends end it."""
        line = self._lines[name]
        if line.rounds:
            return self._rounds(line, start)
        for child in line.before:
            self.run(child, start._replace(said=b""))
        copy = self._made.get(name, 0)
        self._made[name] = copy + 1
        session_name = name if not copy else f"{name}#{copy + 1}"
        session = len(self._rows.session_names)
        self._rows.session_names.append(session_name)
        said, waits, after_ns = start.said, start.waits, start.after_ns
        joins: dict[int, list[int]] = {}
        for position, turn in enumerate(line.turns):
            waits = list(dict.fromkeys([*waits, *joins.pop(position, [])]))
            after_ns += time_ns(line.number, turn.row, ("delay",), NS_PER_MS)
            said = (b"" if line.isolated else said) + self._rows.encode(turn.text)
            tokens = self._tokens(line.number, turn.row)
            prompt = self._tools(turn.row) + said
            if len(self.waits) == _MOST_REQUESTS:
                raise problem(line.number, "spawns", name, f"at most {_MOST_REQUESTS} requests in all")
            request = self._add(prompt, tokens, session, position, waits, after_ns)
            answer = stand_in(f"{session_name}\0{position}", tokens, self._rows.per_token)
            said += answer
            waits, after_ns = [request], 0
            for child in turn.forks:
                self.run(child, _Start([request], 0, said))
            for spawn in turn.spawns:
                ends = [end for child in spawn.children for end in self.run(child, _Start([request]))]
                joins.setdefault(spawn.join_at, []).extend(ends)
        return waits

    def _rounds(self, line: Line, start: _Start) -> list[int]:
        """Add rounds of conversations that start together, each round after all of the previous one."""
        waits, after_ns = start.waits, start.after_ns
        for children, think_ns in line.rounds:
            ends = [self.run(child, _Start(waits, after_ns + think_ns)) for child in children]
            waits, after_ns = list(dict.fromkeys(end for round_ends in ends for end in round_ends)), 0
        return waits if line.gated else start.waits

    def _add(
        self, prompt: bytes, tokens: int, session: int, turn: int, waits: list[int], after_ns: int
    ) -> int:
        self._rows.add(prompt, tokens, session, turn)
        self._rows.arrival[-1] = 0 if waits else after_ns
        self._rows.think[-1] = after_ns if waits else OPEN_LOOP
        self.waits.append(waits)
        return len(self.waits) - 1

    def _tokens(self, line: int, turn: dict[str, Any]) -> int:
        if turn.get("max_tokens") is None:
            self.unlimited += 1
            return ANSWER_TOKENS
        return whole(line, turn, ("max_tokens",), 1)

    def _tools(self, turn: dict[str, Any]) -> bytes:
        tools = turn.get("tools")
        return self._rows.encode(json.dumps(tools)) if tools else b""


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    lines, last = lines_of(source)
    rows = TextRows(settings, BLOCK_SIZE)
    graph = _Graph(rows, lines)
    started = {child for line in lines.values() for child in line.children}
    for name in lines:
        if name not in started:
            graph.run(name, _Start([]))
    columns = columns_without_answers(rows, settings, graph.waits, graph.unlimited)
    columns["lines"] = last
    return columns


FORMAT = TraceFormat(
    "aiperf-dag",
    "JSON lines: session_id, turns of messages, max_tokens, delay (ms), forks, spawns: texts, hashed here",
    SIGNS["aiperf-dag"],
    _read,
    BLOCK_SIZE,
)
