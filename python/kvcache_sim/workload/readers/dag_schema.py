"""Validation of the lines of AIPerf's graphs of conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.readers.agent_rows import in_turn, problem, time_ns
from kvcache_sim.workload.readers.answers_unknown import text_of
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_LINE = {
    "session_id",
    "turns",
    "orchestrator",
    "spawns",
    "rounds",
    "think_time_ms",
    "context_mode",
    "pre_session_spawns",
}
_TURN = {"messages", "model", "max_tokens", "tools", "extra", "forks", "spawns", "delay"}
_ISOLATED = "message_array_with_responses"
_MODES = (None, "deltas_without_responses", _ISOLATED)
_MOST_ROUNDS = 10_000
_DEEPEST = 100


class Spawn(NamedTuple):
    """Conversations that a turn starts with empty history, and the later turn that waits for all of them."""

    children: list[str]
    join_at: int


class Turn(NamedTuple):
    """One request: its members, the text of its messages, and the conversations that its answer starts."""

    row: dict[str, Any]
    text: str
    forks: list[str]
    spawns: list[Spawn]


class Line(NamedTuple):
    """One conversation: its turns, or the rounds of others that it starts without a request of its own."""

    number: int
    turns: list[Turn]
    #: Conversations that start with it.
    before: list[str]
    #: (conversations, delay before them in ns) of each round.
    rounds: list[tuple[list[str], int]]
    #: True if it ends with its last round; else it ends immediately.
    gated: bool
    #: True if each turn has its whole prompt.
    isolated: bool

    @property
    def children(self) -> list[str]:
        """Return every conversation that it starts."""
        found = [*self.before, *(child for children, _ in self.rounds for child in children)]
        for turn in self.turns:
            found += turn.forks
            found += [child for spawn in turn.spawns for child in spawn.children]
        return found


def lines_of(source: TraceSource) -> tuple[dict[str, Line], int]:
    """Return a file's conversations by name, and its last line; raises ``TraceProblem``."""
    lines: dict[str, Line] = {}
    number = 0
    for number, value in objects(source):
        if not isinstance(value, dict):
            raise problem(number, "row", value, "an object of members")
        _known(number, value, _LINE)
        name = value.get("session_id")
        if not isinstance(name, str) or not name or name in lines:
            raise problem(number, "session_id", name, "a text that no other line has")
        lines[name] = _line(number, value)
    _check_graph(lines)
    return lines, number


def _known(line: int, row: dict[str, Any], names: set[str]) -> None:
    other = next((name for name in row if name not in names), None)
    if other is not None:
        raise problem(line, other, row[other], f"one of {', '.join(sorted(names))}")


def _line(number: int, value: dict[str, Any]) -> Line:
    mode = value.get("context_mode")
    if mode not in _MODES:
        raise problem(number, "context_mode", mode, f"{_MODES[1]} or {_ISOLATED}")
    turns = value.get("turns") or []
    if not isinstance(turns, list):
        raise problem(number, "turns", turns, "a list of turns")
    if value.get("orchestrator"):
        if turns or value.get("pre_session_spawns"):
            raise problem(number, "turns", turns, "none with an orchestrator")
        return Line(number, [], [], _rounds(number, value), value.get("rounds") is not None, isolated=False)
    if not turns:
        raise problem(number, "turns", turns, "one turn or more")
    for name in ("rounds", "spawns", "think_time_ms"):
        if value.get(name):
            raise problem(number, name, value[name], "orchestrator: true with it")
    read = [_turn(number, position, len(turns), row) for position, row in enumerate(turns)]
    before = _names(number, "pre_session_spawns", value.get("pre_session_spawns"))
    return Line(number, read, before, [], gated=True, isolated=mode == _ISOLATED)


def _rounds(number: int, value: dict[str, Any]) -> list[tuple[list[str], int]]:
    rounds = value.get("rounds")
    think_ns = time_ns(number, value, ("think_time_ms",), NS_PER_MS)
    if isinstance(rounds, list) and rounds:
        found = []
        for one in rounds:
            if not isinstance(one, dict):
                raise problem(number, "rounds", one, "objects of spawns")
            _known(number, one, {"spawns", "think_time_ms"})
            own_ns = time_ns(number, one, ("think_time_ms",), NS_PER_MS)
            children = _names(number, "spawns", one.get("spawns"), least=1)
            found.append((children, think_ns if one.get("think_time_ms") is None else own_ns))
        return found
    children = _names(number, "spawns", value.get("spawns"), least=1)
    if rounds is not None and (type(rounds) is not int or not 1 <= rounds <= _MOST_ROUNDS):
        raise problem(number, "rounds", rounds, f"1 to {_MOST_ROUNDS}, or a list of rounds")
    return [(children, think_ns)] * (rounds or 1)


def _turn(number: int, position: int, turns: int, row: Any) -> Turn:
    if not isinstance(row, dict):
        raise problem(number, "turns", row, "objects of messages")
    _known(number, row, _TURN)
    forks, spawns = [], []
    for fork in _list(number, "forks", row.get("forks")):
        entry = fork if isinstance(fork, dict) else {"child": fork}
        if entry.get("background") is not True and position + 1 < turns:
            raise problem(number, "forks", fork, "background: true, or forks at the last turn alone")
        forks += _names(number, "forks", [entry.get("child")])
    for spawn in _list(number, "spawns", row.get("spawns")):
        entry = spawn if isinstance(spawn, dict) else {"children": [spawn]}
        join_at = entry.get("join_at")
        if join_at is not None and (type(join_at) is not int or not position < join_at < turns):
            raise problem(number, "join_at", join_at, f"a turn from {position + 1} to {turns - 1}")
        children = _names(number, "spawns", entry.get("children"), least=1)
        spawns.append(Spawn(children, position + 1 if join_at is None else join_at))
    started = [*(child for spawn in spawns for child in spawn.children)]
    for names in (forks, started):
        again = next((name for name in names if names.count(name) > 1), None)
        if again is not None:
            raise problem(number, "spawns", again, "each conversation once a turn")
    return Turn(row, _text(number, row.get("messages")), forks, spawns)


def _text(number: int, messages: Any) -> str:
    found = []
    for message in messages if isinstance(messages, list) and messages else [None]:
        text = text_of(message.get("content")) if isinstance(message, dict) and "role" in message else None
        if text is None:
            raise problem(number, "messages", message, '[{"role": …, "content": …}, …]')
        found.append(text)
    return "".join(found)


def _list(number: int, member: str, value: Any) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise problem(number, member, value, "a list")
    return value or []


def _names(number: int, member: str, value: Any, *, least: int = 0) -> list[str]:
    names = _list(number, member, value)
    if len(names) < least or not all(isinstance(name, str) and name for name in names):
        raise problem(number, member, value, "the session_ids of other lines")
    return list(names)


def _check_graph(lines: dict[str, Line]) -> None:
    """Refuse a start of an unknown conversation, of itself, or of a conversation that two others fork."""
    forked: dict[str, str] = {}
    for name, line in lines.items():
        for child in line.children:
            if child not in lines:
                raise problem(line.number, "spawns", child, "the session_id of a line")
        for child in (child for turn in line.turns for child in turn.forks):
            if child in forked or lines[child].isolated or lines[child].rounds:
                raise problem(line.number, "forks", child, "a conversation forked from a single one")
            forked[child] = name
    starts = {name: [*dict.fromkeys(line.children)] for name, line in lines.items()}
    depth = dict.fromkeys(lines, 1)
    left = dict.fromkeys(lines)
    for name in in_turn(starts):
        del left[name]
        for child in starts[name]:
            depth[child] = max(depth[child], depth[name] + 1)
            if depth[child] > _DEEPEST:
                raise problem(lines[child].number, "spawns", child, f"at most {_DEEPEST} within each other")
    for name in left:
        raise problem(lines[name].number, "spawns", name, "no circle of conversations")
