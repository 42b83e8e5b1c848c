"""Sessions of Claude Code: ``~/.claude/projects/DIR/SESSION.jsonl``, also of sub-agents and compactions.

A call is one ``message.id`` over one or more lines, each with the call's usage; its prompt is
``input_tokens`` + ``cache_read_input_tokens`` + ``cache_creation_input_tokens``. Lines with ``isSidechain``
are conversations of their own; ``compact_boundary`` begins the chain anew. Logs whose texts are cut out have
``kv.bytes`` instead. Source: logs of Claude Code 2.1.38 to 2.1.283.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.documents import each_document
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Notes
from kvcache_sim.workload.imports.source import list_of, problem
from kvcache_sim.workload.imports.turns import (
    EMPTY,
    Details,
    Piece,
    Turn,
    content_hash,
    prompt_count,
    text_bytes,
)
from kvcache_sim.workload.prompts.body import member
from kvcache_sim.workload.readers.dates import time_ns

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_SIGNS = [re.compile(rb'(?<!\\)"' + name + rb'"\s*:') for name in (b"sessionId", b"parentUuid", b"type")]
_KINDS = {"tool_result": "tool_result", "tool_use": "tool_call", "thinking": "thinking", "image": "image"}
_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


@dataclass(slots=True)
class _Chain:
    """A conversation: what waits for its next call, and its last with the id of its message.

    ``parent`` is the line of another file that it continues, ``tools`` and ``system`` are the last known,
    ``head`` both.
    """

    at_ns: int | None = None
    added: list[Piece] = field(default_factory=list)
    anew: bool = False
    turn: Turn | None = None
    message: str = ""
    parent: str = ""
    event: str = ""
    folder: str = ""
    tools: tuple[Piece, ...] = ()
    system: tuple[Piece, ...] = ()
    head: tuple[Piece, ...] = ()


class _Session:
    """The calls of a file, and the causes of misses; ``_of`` has each line's conversation and last call."""

    def __init__(self, notes: Notes) -> None:
        self.calls: list[tuple[int, Turn]] = []
        self.causes = Counter[str]()
        self._notes = notes
        self._chains: defaultdict[str, _Chain] = defaultdict(_Chain)
        self._of: dict[str, tuple[str, Turn | None]] = {}

    def take(self, number: int, row: Any) -> None:
        """Read a line; those without a message are counted."""
        if not isinstance(row, dict):
            raise problem(number, "not an object", row, "a line of a Claude Code session")
        key, before = self._conversation(row)
        chain, message = self._chains[key], row.get("message")
        if row.get("subtype") == "compact_boundary" or row.get("isCompactSummary") is True:
            chain.anew, chain.added, chain.event = True, [], "compaction"
        above = row.get("parentUuid")
        if above is not None and self._of.get(str(above), ("", None))[0] != key:
            chain.parent = str(above)
        chain.folder = chain.folder or str(row.get("cwd") or "")
        if row.get("type") == "attachment":
            _attach(chain, member(row, "attachment"))
        if row.get("type") not in ("user", "assistant") or not isinstance(message, dict):
            self._notes.leave_out(number, "lines of a session that are no message")
        elif row["type"] == "user":
            chain.at_ns = time_ns(row.get("timestamp")) or chain.at_ns
            chain.added.extend(_pieces(message, "user"))
        else:
            self._answer(number, row, key, before)
            before = chain.turn
        self._of[str(row.get("uuid"))] = (key, before)
        if before is not None and before.details is not None:
            before.details.lines.append(str(row.get("uuid")))

    def _conversation(self, row: dict[str, Any]) -> tuple[str, Turn | None]:
        """Return the conversation of a line, and the call that its parents lead to."""
        parent, before = self._of.get(str(row.get("parentUuid")), ("", None))
        key = str(member(row, "sessionId") or "")
        if row.get("isSidechain") is True:
            agent = str(member(row, "agentId", "uuid"))
            key = parent if " " in parent and "agentId" not in row else f"{key} {agent}"
        return key, before if key == parent else None

    def _answer(self, number: int, row: dict[str, Any], key: str, before: Turn | None) -> None:
        """Read a line of an answer: a call if its message is another than the last."""
        chain, message = self._chains[key], row["message"]
        usage, name = message.get("usage"), str(member(message, "id") or row.get("uuid"))
        tail, read, written, said = (prompt_count(number, usage, each) or 0 for each in _COUNTS)
        if tail + read + written == 0:  # also of the model "<synthetic>": lines that the client wrote
            self._notes.leave_out(number, EMPTY)
            return
        if name != chain.message or chain.turn is None:
            at = time_ns(row.get("timestamp")) if chain.at_ns is None else chain.at_ns
            if at is None:
                raise problem(number, "no time", row.get("timestamp"), "timestamp of ISO 8601")
            turn = Turn(at, key, str(message.get("model")), tail + read + written, read, None, chain.added)
            turn.anew, turn.carried_tokens, turn.is_side = chain.anew, read + written, " " in key
            turn.call = f"{name} {row.get('timestamp')}"
            turn.kept_tokens = self._kept(message, chain, before, turn)
            turn.details = self._details(number, row, chain, before)
            chain.turn, chain.message, chain.added, chain.anew, chain.event = turn, name, [], False, ""
            self.calls.append((number, turn))
        pieces = _pieces(message, "assistant")
        chain.turn.answer_bytes += sum(piece.size_bytes for piece in pieces)
        if chain.turn.details is not None:
            chain.turn.details.answer += pieces
        chain.turn.seen_tokens = max(chain.turn.seen_tokens, said)
        if message.get("stop_reason") is not None:
            chain.turn.output_tokens = said

    def _details(self, number: int, row: dict[str, Any], chain: _Chain, before: Turn | None) -> Details:
        """Return what the first line of a call has beyond its lengths."""
        message = row["message"]
        usage, diagnosed = message.get("usage"), message.get("diagnostics", 0)
        at = time_ns(row.get("timestamp"))
        details = Details(str(member(message, "id") or row.get("uuid")), at or chain.at_ns or 0)
        lives = member(usage, "cache_creation")
        written = prompt_count(number, usage, "cache_creation_input_tokens") or 0
        hour = min(prompt_count(number, lives, "ephemeral_1h_input_tokens") or 0, written)
        details.written = {"5m": written - hour, "1h": hour}
        cause = member(diagnosed, "cache_miss_reason")
        if diagnosed is None or cause is not None:  # a cause that is null: the comparison was not ready
            missed = member(cause, "cache_missed_input_tokens")
            details.label = (str(member(cause, "type") or ""), missed if isinstance(missed, int) else None)
        details.parent = (
            before.details.id if before is not None and before.details is not None else chain.parent
        )
        edits = member(message.get("context_management"), "applied_edits")
        details.head, details.event = chain.head, chain.event or ("edit" if edits else "")
        details.folder = chain.folder
        return details

    def _kept(self, message: Any, chain: _Chain, before: Turn | None, turn: Turn) -> int | None:
        """Return what is left of the prompt before if the line says so: a named cause, an earlier parent."""
        cause = member(member(message, "diagnostics"), "cache_miss_reason")
        kind, missed = member(cause, "type"), member(cause, "cache_missed_input_tokens")
        if isinstance(kind, str):
            self.causes[kind] += 1
        last, read = chain.turn, turn.cached_tokens or 0
        if last is None or chain.anew:
            return None
        if str(kind).endswith("_changed") and isinstance(missed, int) and read < (last.carried_tokens or 0):
            return max(read, turn.input_tokens - missed)
        return None if before in (None, last) else max(read, before.input_tokens)


def _attach(chain: _Chain, said: Any) -> None:
    """Read an attachment that holds tools and system, or a cut history; the others are texts of messages."""
    kind = str(member(said, "type"))
    if kind.startswith("thinking_"):
        chain.event = chain.event or "thinking stripped"
    if kind == "prompt_snapshot":
        details = (("tools", member(said, "tools")), ("system", member(said, "systemPrompt")))
        tools, system = (
            tuple(Piece(name, text_bytes(part), content_hash(part)) for part in list_of(parts))
            for name, parts in details
        )
        chain.tools, chain.system = tools or chain.tools, system or chain.system
        chain.head = chain.tools + chain.system


def _pieces(message: dict[str, Any], said: str) -> list[Piece]:
    """Return the parts of a message; ``said`` is the kind of its texts."""
    content = message.get("content")
    if not isinstance(content, list):
        whole = {name: message.get(name) for name in ("content", "kv")}
        return [Piece(said, text_bytes(whole), content_hash(whole if message.get("kv") else content))]
    return [
        Piece(_KINDS.get(str(member(each, "type")), said), text_bytes(each), content_hash(each))
        for each in content
    ]


def _detect(head: bytes) -> bool:
    return all(sign.search(head) for sign in _SIGNS) and b'"usageMetadata"' not in head  # Qwen Code's


def _read(source: TraceSource, reading: Reading) -> Requests:
    session = _Session(reading.notes)
    yield from each_document(source, reading, session.take)
    yield from session.calls
    if session.causes:
        said = ", ".join(f"{count:,} {cause}" for cause, count in sorted(session.causes.items()))
        reading.notes.remark(f"causes of misses that the provider named: {said}")


KIND = LogKind("claude-code", "sessions of Claude Code and their sub-agents", _detect, _read)
