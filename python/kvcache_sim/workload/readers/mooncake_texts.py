"""Mooncake rows whose prompts are texts: ``text_input``, ``messages`` or a ``payload`` instead of lengths.

Source: aiperf, dataset/loader/models.py (``MooncakeTrace``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.prompts.body import Seen, member
from kvcache_sim.workload.prompts.read import prompt_of
from kvcache_sim.workload.readers.agent_rows import problem, time_ns, whole
from kvcache_sim.workload.readers.chained_text import TextRows
from kvcache_sim.workload.readers.format import SIGNS, TraceFormat
from kvcache_sim.workload.readers.json_stream import each_object
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

BLOCK_SIZE = 16


class _Rows:
    """Rows as requests: those of a session are its turns, in the order of the file."""

    def __init__(self, settings: ReadSettings) -> None:
        self.text, self.seen, self._settings = TextRows(settings, BLOCK_SIZE), Seen(), settings
        self._sessions: dict[str, int] = {}
        self._turns: list[int] = []

    def add(self, line: int, row: Any) -> None:
        """Add a row; raises TraceProblem or BodyError."""
        if not isinstance(row, dict):
            raise problem(line, "a row", row, "an object")
        body = member(row, "payload")
        text = member(row, "text_input")
        prompt = text if isinstance(text, str) else prompt_of(row if body is None else body, self.seen)
        if not prompt:
            raise problem(line, "text_input", text, "a text, or messages")
        limit = member(row, "output_length") is None and self._settings.answer_tokens
        tokens = limit or whole(line, row, ("output_length",), 1)
        at_ns = time_ns(line, row, ("timestamp",), NS_PER_MS)
        wait_ns = time_ns(line, row, ("delay",), NS_PER_MS)
        session, turn = self._turn(member(row, "session_id"))
        rows = self.text
        rows.add(rows.encoded(prompt), tokens, session, turn)
        last_ns = rows.arrival[-2] if len(rows.arrival) > 1 else 0
        rows.arrival[-1] = last_ns if row.get("timestamp") is None else at_ns
        rows.think[-1] = wait_ns if turn and row.get("delay") is not None else OPEN_LOOP

    def _turn(self, name: Any) -> tuple[int, int]:
        if name is None:
            return NO_SESSION, 0
        session = self._sessions.setdefault(str(name), len(self._sessions))
        if session == len(self._turns):
            self.text.session_names.append(str(name))
            self._turns.append(0)
        self._turns[session] += 1
        return session, self._turns[session] - 1


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    rows = _Rows(settings)
    bad = each_object(source, settings.on_bad_row == "skip", rows.add)
    text = rows.text
    columns = text.columns(text.said(settings, rows.seen))
    opens = columns["arrival_ns"][columns["think_ns"] == OPEN_LOOP]
    columns["lines"], columns["unordered"] = bad.last_line, bool((np.diff(opens) < 0).any())
    columns["problems"], columns["problem_counts"] = bad.first, [("value", bad.rows)] if bad.rows else []
    return columns


FORMAT = TraceFormat(
    "mooncake-texts",
    "Mooncake's rows with text_input, messages or payload: texts, hashed here",
    SIGNS["mooncake-texts"],
    _read,
    BLOCK_SIZE,
)
