"""Sessions of Codex: ``~/.codex/sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl``.

A call ends with an ``event_msg`` of ``token_count``: ``last_token_usage`` has its counts, ``input_tokens`` with
the cached ones; without ``info``, or with the totals of the one before, it is no call. ``compacted`` replaces
the history. Source: openai/codex codex-rs/protocol/src/protocol.rs @ 001cb8e2, a log of 0.114.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Notes
from kvcache_sim.workload.imports.records import each_record
from kvcache_sim.workload.imports.source import member, problem, time_ns
from kvcache_sim.workload.imports.turns import EMPTY, Piece, Turn, prompt_count, text_bytes

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_SIGN = re.compile(
    rb'(?<!\\)"type"\s*:\s*"(session_meta|turn_context|response_item|event_msg|compacted)"', re.ASCII
)
_ENVELOPE = re.compile(rb'(?<!\\)"payload"\s*:')
_RESULTS = ("function_call_output", "custom_tool_call_output")


def _detect(head: bytes) -> bool:
    return bool(_SIGN.search(head) and _ENVELOPE.search(head))


@dataclass(slots=True)
class _Rollout:
    """The calls of a file, and what waits for the next: ``added`` goes with it, ``later`` with the one after."""

    notes: Notes
    session: str = ""
    model: str = ""
    at_ns: int | None = None
    added: list[Piece] = field(default_factory=list)
    later: list[Piece] = field(default_factory=list)
    later_ns: int | None = None
    answer_bytes: int = 0
    anew: bool = False
    totals: Any = None
    #: The user turn of the log: its first prompt, and whether its answers have reasoning.
    starts: bool = True
    first_tokens: int = 0
    last_tokens: int = 0
    reasons: bool = False

    def take(self, number: int, row: Any) -> Turn | None:
        """Read a line; return the call that ends with it."""
        kind, payload = member(row, "type"), member(row, "payload")
        if not isinstance(kind, str) or (payload is not None and not isinstance(payload, dict)):
            raise problem(
                number, "no line of a Codex session", row, '{"timestamp": …, "type": …, "payload": {…}}'
            )
        payload = payload or {}
        if kind == "session_meta":
            self.session = str(payload.get("id") or self.session)
        elif kind == "turn_context":
            self.model = str(payload.get("model") or self.model)
        elif kind == "response_item":
            self._item(payload, time_ns(row.get("timestamp")))
        elif kind == "compacted":
            self.anew = True
            self.added, self.later = (
                [Piece("user", text_bytes(member(payload, "replacement_history", "message")))],
                [],
            )
        elif payload.get("type") == "token_count":
            return self._call(number, row, payload.get("info"))
        else:
            self.notes.leave_out(number, "lines of a session that are neither items nor counts")
        return None

    def _item(self, item: dict[str, Any], at_ns: int | None) -> None:
        kind, role = item.get("type"), item.get("role")
        if kind not in _RESULTS and (kind != "message" or role == "assistant"):
            self.answer_bytes += text_bytes(item)
            return
        piece = Piece(
            "tool_result" if kind in _RESULTS else "user", text_bytes(member(item, "output", "content"))
        )
        self.starts = self.starts or role == "user"
        if self.answer_bytes:
            self.later.append(piece)
            self.later_ns = at_ns or self.later_ns
        else:
            self.added.append(piece)
            self.at_ns = at_ns or self.at_ns

    def _call(self, number: int, row: dict[str, Any], info: Any) -> Turn | None:
        usage, totals = member(info, "last_token_usage"), member(info, "total_token_usage")
        if not isinstance(usage, dict) or (totals is not None and totals == self.totals):
            self.notes.leave_out(number, "counts of no new call")
            return None
        self.totals = totals
        inputs, cached, outputs, reasoning = (
            prompt_count(number, usage, name) or 0
            for name in ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
        )
        at = time_ns(row.get("timestamp")) if self.at_ns is None else self.at_ns
        if at is None:
            raise problem(number, "no time", row.get("timestamp"), "timestamp, as 2026-03-21T10:06:05.542Z")
        if inputs == 0:
            self.notes.leave_out(number, EMPTY)
            return None
        turn = Turn(
            at,
            self.session,
            self.model,
            inputs,
            cached,
            outputs,
            kept_tokens=self._kept(inputs, cached),
            anew=self.anew,
            call=f"{row.get('timestamp')} {totals}",
            answer_bytes=self.answer_bytes,
            added=tuple(self.added),
        )
        self._next(turn, reasoning)
        return turn

    def _kept(self, inputs: int, cached: int) -> int | None:
        """Return how much is left where a user's turn drops the reasoning of the one before."""
        if self.starts and self.reasons and not self.anew and inputs < self.last_tokens:
            return max(cached, self.first_tokens)
        return None

    def _next(self, turn: Turn, reasoning: int) -> None:
        if self.starts or self.anew:
            self.first_tokens, self.reasons = turn.input_tokens, False
        self.reasons, self.starts, self.anew = self.reasons or reasoning > 0, False, False
        self.added, self.later, self.at_ns, self.later_ns = self.later, [], self.later_ns, None
        self.answer_bytes, self.last_tokens = 0, turn.input_tokens + (turn.output_tokens or 0)


def _read(source: TraceSource, reading: Reading) -> Requests:
    return each_record(source, reading, _Rollout(reading.notes).take)


KIND = LogKind("codex", "sessions of Codex, ~/.codex/sessions/…/rollout-….jsonl", _detect, _read)
