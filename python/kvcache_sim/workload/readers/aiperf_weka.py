"""Traces of agents as kv-cache-tester writes and AIPerf replays them: turns with sub-agents between them.

Sources: aiperf 0.13.0, dataset/loader/weka_trace_models.py and weka_trace.py (which turn waits for which);
docs/tutorials/weka-trace.md (turns of several agents in one list).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim.base.units import NS_PER_MS, NS_PER_S
from kvcache_sim.workload.readers.agent_rows import (
    AgentRequest,
    AgentRows,
    block_ids,
    problem,
    time_ns,
    whole,
)
from kvcache_sim.workload.readers.format import SIGNS, TraceFormat
from kvcache_sim.workload.readers.json_rows import WEKA_BLOCK_SIZE, stated_block
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

#: A sub-agent's request that is earlier than its marker is moved to the marker; recorded times that differ by
#: less than this count as equal.
_SAME_NS = 1000


class _Turn(NamedTuple):
    """A request of the file: its start, its end, and its blocks."""

    at_ns: int
    end_ns: int
    row: dict[str, Any]
    input_tokens: int
    ids: list[int]


class _Sub(NamedTuple):
    """A sub-agent: its recorded end, and its last request with that request's recorded end."""

    end_ns: int
    last: int
    last_end_ns: int


class _Lane:
    """A chain of requests, each of which extends the one before: its last request, and its sub-agents."""

    def __init__(self, session: str, number: int, last: _Turn) -> None:
        self.session, self.number, self.last = session, number, last
        self.running: list[_Sub] = []

    def continued_by(self, turn: _Turn, block_size: int) -> bool:
        """Return True if a request extends all whole blocks of the chain, after its end and on its model."""
        tail = self.last.ids[: self.last.input_tokens // block_size]
        same_model = turn.row.get("model") == self.last.row.get("model")
        return bool(tail) and turn.ids[: len(tail)] == tail and same_model and self.ended_by(turn)

    def ended_by(self, turn: _Turn) -> bool:
        """Return True if the chain's last request ended by the start of another one."""
        return turn.at_ns + _SAME_NS >= self.last.end_ns


class _Session:
    """One trace's requests, numbered in the order added; ids are local to the trace.

    Its list of turns may have those of several agents side by side: each chain of them is a session.
    """

    def __init__(self, line: int, value: dict[str, Any], rows: AgentRows, *, keep: bool) -> None:
        self._line, self._rows, self._keep = line, rows, keep
        name = value.get("id")
        if not isinstance(name, str) or not name:
            raise problem(line, "id", name, "a text")
        if value.get("hash_id_scope") != "local":
            raise problem(line, "hash_id_scope", value.get("hash_id_scope"), "local")
        self.name = name
        #: Sub-agents before any turn: no turn can start them.
        self.orphans = 0
        self.lanes: list[_Lane] = []

    def add(self, entries: list[Any]) -> None:
        """Add the turns, and each sub-agent after the turn before it; the next due turn waits for it."""
        turns: list[tuple[int, _Turn]] = []
        subs: list[tuple[int, dict[str, Any]]] = []
        for position, entry in enumerate(entries):
            if isinstance(entry, dict) and entry.get("type") == "subagent":
                subs.append((position, entry))
            else:
                turns.append((position, self._turn(entry, 0)))
        self.orphans = sum(not turns or at < turns[0][0] for at, _ in subs)
        agents: set[str] = set()
        for index, (position, turn) in enumerate(turns):
            lane = self._next_turn(turn)
            until = turns[index + 1][0] if index + 1 < len(turns) else len(entries)
            for at, entry in subs:
                if position < at < until:
                    lane.running += self._sub_agent(entry, lane.number, turn, agents)

    def _next_turn(self, turn: _Turn) -> _Lane:
        """Add a turn behind the longest chain that it continues, else as a new chain; return the chain.

        A new chain starts after the request that ended last before it.
        """
        size = self._rows.block_size
        ended = [lane for lane in self.lanes if lane.ended_by(turn)]
        chains = [lane for lane in ended if lane.continued_by(turn, size)]
        before = max(
            chains or ended,
            key=lambda lane: (len(lane.last.ids) if chains else 0, lane.last.end_ns),
            default=None,
        )
        done = [sub for sub in before.running if turn.at_ns + _SAME_NS >= sub.end_ns] if before else []
        waits = [before.number, *(sub.last for sub in done)] if before else []
        since = max([before.last.end_ns if before else 0, *(sub.last_end_ns for sub in done)])
        session = f"{self.name}::lane:{len(self.lanes)}" if self.lanes else self.name
        lane = before if before and chains else _Lane(session, 0, turn)
        if before:
            before.running = [sub for sub in before.running if sub not in done]
        if lane is not before:
            self.lanes.append(lane)
        lane.number, lane.last = self._add(lane.session, turn, waits, since), turn
        return lane

    def _sub_agent(self, entry: dict[str, Any], number: int, parent: _Turn, agents: set[str]) -> list[_Sub]:
        agent, inner = entry.get("agent_id"), entry.get("requests")
        if not isinstance(agent, str) or agent in agents:
            raise problem(self._line, "agent_id", agent, "a text that no other sub-agent of the trace has")
        agents.add(agent)
        if not isinstance(inner, list):
            raise problem(self._line, "requests", inner, "the requests of a sub-agent")
        starts_ns = time_ns(self._line, entry, ("t",), NS_PER_S)
        turns = sorted((self._turn(one, starts_ns) for one in inner), key=lambda turn: turn.at_ns)
        since = parent.end_ns
        for turn in turns:
            number = self._add(f"{self.name}::sa:{agent}", turn, [number], since)
            since = turn.end_ns
        if not turns:
            return []
        lasts_ns = time_ns(self._line, entry, ("duration_ms",), NS_PER_MS)
        has_duration = entry.get("duration_ms") is not None
        end_ns = starts_ns + lasts_ns if has_duration else max(turn.end_ns for turn in turns)
        return [_Sub(end_ns, number, since)]

    def _turn(self, row: Any, starts_ns: int) -> _Turn:
        if not isinstance(row, dict) or row.get("type") not in ("n", "s"):
            got = row.get("type") if isinstance(row, dict) else row
            raise problem(self._line, "type", got, "n, s or subagent")
        at_ns = time_ns(self._line, row, ("t",), NS_PER_S)
        at_ns += starts_ns if at_ns + _SAME_NS < starts_ns else 0
        end_ns = at_ns + time_ns(self._line, row, ("api_time",), NS_PER_S)
        tokens = whole(self._line, row, ("in",), 1)
        return _Turn(at_ns, end_ns, row, tokens, block_ids(self._line, row, tokens, self._rows.block_size))

    def _add(self, session: str, turn: _Turn, waits: list[int], since_ns: int) -> int:
        request = AgentRequest(
            turn.at_ns,
            turn.input_tokens,
            whole(self._line, turn.row, ("out",), 0),
            [f"{self.name}:{block}" for block in turn.ids],
            session,
            max(0, turn.at_ns - since_ns),
            self._members(turn.row) if self._keep else "",
        )
        return self._rows.add(request, waits)

    @staticmethod
    def _members(row: dict[str, Any]) -> str:
        members = {name: row[name] for name in ("model", "stop") if isinstance(row.get(name), str)}
        return json.dumps(members)[1:-1]


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    rows: AgentRows | None = None
    names: set[str] = set()
    line = orphans = forks = 0
    for line, value in objects(source):
        if not isinstance(value, dict) or not isinstance(value.get("requests"), list):
            raise problem(line, "requests", value, "the requests of a trace")
        size = settings.block_size or whole(line, value, ("block_size",), 1)
        if rows is None:
            rows = AgentRows(size)
        if rows.block_size != size:
            raise problem(line, "block_size", size, f"{rows.block_size}, as the first trace has")
        session = _Session(line, value, rows, keep=settings.keeps_members)
        if session.name in names:
            raise problem(line, "id", session.name, "a text that no other trace has")
        names.add(session.name)
        session.add(value["requests"])
        orphans += session.orphans
        forks += max(0, len(session.lanes) - 1)
    rows = rows or AgentRows(WEKA_BLOCK_SIZE)
    columns = rows.columns([str(block) for block in rows.dense], line)
    if orphans:
        said = f"{orphans} sub-agents come before any turn of their trace: left out, as AIPerf does"
        columns["findings"].append(("orphans", orphans, 0, said))
    if forks:
        said = f"{forks} requests extend no earlier one that has ended: each starts a session of its own"
        columns["findings"].append(("lanes", forks, 0, said))
    return columns


FORMAT = TraceFormat(
    "aiperf-weka",
    "JSON, one trace an object: id, block_size, requests of t, in, out, hash_ids, api_time (s), sub-agents",
    SIGNS["aiperf-weka"],
    _read,
    WEKA_BLOCK_SIZE,
    stated_block,
)
