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
from kvcache_sim.workload.trace import OPEN_LOOP

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings

BLOCK_SIZE = 16


def _read(source: TraceSource, settings: ReadSettings) -> RawColumns:
    """Read the rows; those of a session are its turns, in the order of the file."""
    rows, seen = TextRows(settings, BLOCK_SIZE), Seen()

    def add(line: int, row: Any) -> None:
        text, delay = member(row, "text_input"), member(row, "delay")
        prompt = text if isinstance(text, str) else prompt_of(member(row, "payload") or row, seen)
        if not isinstance(row, dict) or not prompt:
            raise problem(line, "text_input", text, "a text, or messages")
        assumed = {"output_length": settings.answer_tokens, **{k: v for k, v in row.items() if v is not None}}
        answer = whole(line, assumed, ("output_length",), 1)
        at_ns, wait_ns = (time_ns(line, row, (name,), NS_PER_MS) for name in ("timestamp", "delay"))
        name = member(row, "session_id")
        session, turn = rows.session_turn(None if name is None else str(name))
        rows.add(rows.encoded(prompt), answer, session, turn)
        if row.get("timestamp") is None and len(rows.arrival) > 1:
            at_ns = rows.arrival[-2]
        rows.arrival[-1], rows.think[-1] = at_ns, wait_ns if turn and delay is not None else OPEN_LOOP

    bad = each_object(source, settings.on_bad_row == "skip", add)
    columns = rows.columns(rows.said(settings, seen))
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
    numbers_turns=lambda head: b'"turn"' in head,
)
