"""Sessions of Claude Code: ``~/.claude/projects/DIR/SESSION.jsonl``, sub-agents and compactions beside them.

A call is one ``message.id`` over one or more lines, each with the call's usage; its prompt is ``input_tokens``
+ ``cache_read_input_tokens`` + ``cache_creation_input_tokens``. Lines with ``isSidechain`` are conversations of
their own; ``compact_boundary`` begins the chain anew. Logs whose texts are cut out have ``kv.bytes`` in their
place. Source: logs of Claude Code 2.1.38 to 2.1.283.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Notes
from kvcache_sim.workload.imports.records import each_record
from kvcache_sim.workload.imports.source import member, problem, time_ns
from kvcache_sim.workload.imports.turns import EMPTY, Piece, Turn, prompt_count, text_bytes

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_SIGNS = [re.compile(rb'(?<!\\)"' + name + rb'"\s*:') for name in (b"sessionId", b"parentUuid", b"type")]
#: Model of lines that the client wrote itself.
_SYNTHETIC = "<synthetic>"
_KINDS = {"tool_result": "tool_result", "image": "image"}


def _detect(head: bytes) -> bool:
    return all(sign.search(head) for sign in _SIGNS)


@dataclass(slots=True)
class _Chain:
    """A conversation: what waits for its next call, and the number of its last."""

    session: str
    at_ns: int | None = None
    added: list[Piece] = field(default_factory=list)
    anew: bool = False
    call: int = -1
    message: str = ""


@dataclass(slots=True)
class _Session:
    """The calls of a file; ``_of`` has the conversation of each line and the last call before it."""

    notes: Notes
    calls: list[tuple[int, Turn]] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)
    _chains: dict[str, _Chain] = field(default_factory=dict)
    _of: dict[str, tuple[str, int]] = field(default_factory=dict)

    def take(self, number: int, row: Any) -> None:
        """Read a line; those without a message are counted."""
        if not isinstance(row, dict):
            raise problem(number, "not an object", row, "a line of a Claude Code session")
        key, before = self._place(row)
        chain = self._chains.setdefault(key, _Chain(key))
        kind, message = row.get("type"), row.get("message")
        if kind == "assistant" and isinstance(message, dict):
            self._answer(number, row, message, chain, before)
            before = chain.call
        elif kind == "user" and isinstance(message, dict):
            at = time_ns(row.get("timestamp"))
            chain.at_ns = chain.at_ns if at is None else at
            chain.added.extend(_pieces(message))
        elif kind == "system" and row.get("subtype") == "compact_boundary":
            chain.anew, chain.added = True, []
        else:
            self.notes.leave_out(number, "lines of a session that are no message")
        if isinstance(row.get("uuid"), str):
            self._of[row["uuid"]] = (key, before)

    def _place(self, row: dict[str, Any]) -> tuple[str, int]:
        """Return the conversation of a line, and the call that its parents lead to."""
        parent, before = self._of.get(str(row.get("parentUuid")), ("", -1))
        key = str(member(row, "sessionId") or "")
        if row.get("isSidechain") is True:
            agent = member(row, "agentId")
            side = parent if " " in parent else f"{key} {row.get('uuid')}"
            key = f"{key} {agent}" if agent is not None else side
        return key, before if key == parent else -1

    def _answer(
        self, number: int, row: dict[str, Any], message: dict[str, Any], chain: _Chain, before: int
    ) -> None:
        if message.get("model") == _SYNTHETIC:
            self.notes.leave_out(number, "lines that the client wrote in the model's place")
            return
        name = str(member(message, "id") or row.get("uuid"))
        if name != chain.message:
            turn = self._turn(number, row, message, chain, before)
            if turn is None:
                return
            self.calls.append((number, turn))
            chain.call, chain.message, chain.added, chain.anew = len(self.calls) - 1, name, [], False
        line, turn = self.calls[chain.call]
        said = prompt_count(number, message.get("usage"), "output_tokens") or 0
        self.calls[chain.call] = (
            line,
            replace(
                turn,
                answer_bytes=turn.answer_bytes + sum(piece.size_bytes for piece in _pieces(message)),
                seen_tokens=max(turn.seen_tokens, said),
                output_tokens=turn.output_tokens if message.get("stop_reason") is None else said,
            ),
        )

    def _turn(
        self, number: int, row: dict[str, Any], message: dict[str, Any], chain: _Chain, before: int
    ) -> Turn | None:
        usage = message.get("usage")
        if not isinstance(usage, dict):
            raise problem(number, "no usage", usage, "an object of token counts")
        tail, read, written = (
            prompt_count(number, usage, f"{name}input_tokens") or 0
            for name in ("", "cache_read_", "cache_creation_")
        )
        at = time_ns(row.get("timestamp")) if chain.at_ns is None else chain.at_ns
        if at is None:
            raise problem(number, "no time", row.get("timestamp"), "timestamp, as 2026-02-12T16:02:25.284Z")
        total = tail + read + written
        if total == 0:
            self.notes.leave_out(number, EMPTY)
            return None
        return Turn(
            at,
            chain.session,
            str(message.get("model")),
            total,
            read,
            None,
            carried_tokens=read + written,
            kept_tokens=self._kept(message, chain, before, total, read),
            anew=chain.anew,
            is_side=row.get("isSidechain") is True,
            call=f"{message.get('id')} {row.get('timestamp')}" if member(message, "id") else "",
            added=tuple(chain.added),
        )

    def _kept(self, message: dict[str, Any], chain: _Chain, before: int, total: int, read: int) -> int | None:
        """Return how much of the prompt before is left if the line says so: a named cause, an earlier parent."""
        cause = member(member(message, "diagnostics"), "cache_miss_reason")
        kind = member(cause, "type")
        if isinstance(kind, str):
            self.causes[kind] += 1
        if chain.call < 0:
            return None
        last = self.calls[chain.call][1]
        missed = member(cause, "cache_missed_input_tokens")
        if str(kind).endswith("_changed") and isinstance(missed, int) and read < (last.carried_tokens or 0):
            return max(read, total - missed)
        if 0 <= before < chain.call and not chain.anew:
            return max(read, self.calls[before][1].input_tokens)
        return None


def _pieces(message: dict[str, Any]) -> list[Piece]:
    """Return the parts of a message."""
    content = message.get("content")
    if not isinstance(content, list):
        return [Piece("user", text_bytes({name: message.get(name) for name in ("content", "kv")}))]
    return [Piece(_KINDS.get(str(member(each, "type")), "user"), text_bytes(each)) for each in content]


def _read(source: TraceSource, reading: Reading) -> Requests:
    session = _Session(reading.notes)
    yield from each_record(source, reading, session.take)
    yield from session.calls
    if session.causes:
        said = ", ".join(f"{count:,} {cause}" for cause, count in sorted(session.causes.items()))
        reading.notes.remark(f"causes of misses that the provider named: {said}")


KIND = LogKind(
    "claude-code", "sessions of Claude Code and their sub-agents, ~/.claude/projects", _detect, _read
)
