"""Sessions of Codex: ``~/.codex/sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl``.

A call ends with an ``event_msg`` of ``token_count``: ``last_token_usage`` has its counts, ``input_tokens``
with the cached ones; without ``info``, or with the totals of the one before, it is no call. ``compacted``
replaces the history. Source: openai/codex codex-rs/protocol/src/protocol.rs @ 001cb8e2, a log of 0.114.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.documents import each_document
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Notes
from kvcache_sim.workload.imports.source import problem
from kvcache_sim.workload.imports.turns import Details, Piece, Turn, content_hash, prompt_count, text_bytes
from kvcache_sim.workload.prompts.body import member
from kvcache_sim.workload.readers.dates import time_ns

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_TYPES = rb"session_meta|turn_context|response_item|event_msg|compacted"
_SIGNS = [re.compile(rb'(?<!\\)"type"\s*:\s*"(' + _TYPES + rb')"'), re.compile(rb'(?<!\\)"payload"\s*:')]
_RESULTS = ("function_call_output", "custom_tool_call_output")
_COUNTS = ("input_tokens", "cached_input_tokens", "output_tokens")


@dataclass(slots=True)
class _Rollout:
    """A file as far as it is read: ``added`` and ``answer`` are of the next call."""

    notes: Notes
    session: str = ""
    folder: str = ""
    model: str = ""
    at_ns: int | None = None
    added: list[Piece] = field(default_factory=list)
    answer: list[Piece] = field(default_factory=list)
    anew: bool = False
    totals: Any = None

    def take(self, number: int, row: Any) -> Turn | None:
        """Read a line; return the call that ends with it."""
        kind, payload = member(row, "type"), member(row, "payload")
        if not isinstance(kind, str) or not isinstance(payload or {}, dict):
            raise problem(number, "no line of a Codex session", row, "timestamp, type and payload")
        if kind == "session_meta":
            self.session = str(member(payload, "id") or self.session)
            self.folder = str(member(payload, "cwd") or "")
        elif kind == "turn_context":
            self.model = str(member(payload, "model") or self.model)
        elif kind == "response_item":
            self._item(payload, time_ns(row.get("timestamp")))
        elif kind == "compacted":
            history = member(payload, "replacement_history", "message")
            self.anew, self.added = True, [Piece("user", text_bytes(history), content_hash(history))]
        elif member(payload, "type") == "token_count":
            return self._call(number, row, member(payload, "info"))
        else:
            self.notes.leave_out(number, "lines of a session that are neither items nor counts")
        return None

    def _item(self, item: Any, at_ns: int | None) -> None:
        kind = member(item, "type")
        if kind not in _RESULTS and (kind != "message" or member(item, "role") == "assistant"):
            self.answer.append(Piece("assistant", text_bytes(item), content_hash(item)))
            return
        said = member(item, "output", "content")
        kind = "tool_result" if kind in _RESULTS else "user"
        self.added.append(Piece(kind, text_bytes(said), content_hash(said)))
        self.at_ns = at_ns or self.at_ns

    def _call(self, number: int, row: Any, info: Any) -> Turn | None:
        usage, totals = member(info, "last_token_usage"), member(info, "total_token_usage")
        inputs, cached, outputs = (prompt_count(number, usage, each) or 0 for each in _COUNTS)
        if inputs == 0 or (totals is not None and totals == self.totals):
            self.notes.leave_out(number, "counts of no new call")
            return None
        at = time_ns(row.get("timestamp")) if self.at_ns is None else self.at_ns
        if at is None:
            raise problem(number, "no time", row.get("timestamp"), "timestamp of ISO 8601")
        turn = Turn(at, self.session, self.model, inputs, cached, outputs, self.added)
        turn.anew, turn.answer_bytes = self.anew, sum(piece.size_bytes for piece in self.answer)
        turn.call = f"{row.get('timestamp')} {totals}"
        details = Details(f"{self.session}:{number}", time_ns(row.get("timestamp")) or at, answer=self.answer)
        details.folder = self.folder
        details.event, details.provider = "compaction" if self.anew else "", "openai"
        turn.details = details
        self.totals, self.anew, self.added, self.at_ns, self.answer = totals, False, [], None, []
        return turn


def _detect(head: bytes) -> bool:
    return all(sign.search(head) for sign in _SIGNS)


def _read(source: TraceSource, reading: Reading) -> Requests:
    return each_document(source, reading, _Rollout(reading.notes).take)


KIND = LogKind("codex", "sessions of Codex, ~/.codex/sessions/…/rollout-….jsonl", _detect, _read)
