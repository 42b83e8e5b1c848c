"""Conversations as requests: one an answer, its prompt all that was said before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.readers.chained_text import TextRows, lengths_said
from kvcache_sim.workload.readers.json_stream import objects

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns, TraceSource
    from kvcache_sim.workload.readers.settings import ReadSettings


class Conversation(NamedTuple):
    """What was said, in order, and by whom."""

    name: str
    #: (is an answer of the model, text) of each turn.
    turns: list[tuple[bool, str]]
    #: Most tokens of an answer that is not there yet; None where nobody says.
    asked_tokens: int | None = None


def read_conversations(
    source: TraceSource, settings: ReadSettings, block_size: int, read: Callable[[int, Any], Conversation]
) -> RawColumns:
    """Read an array or lines of conversations; ``read`` takes a line and its value."""
    rows = TextRows(settings, block_size)
    problems: list[tuple[int, int, str, str, str, str, str]] = []
    bad = unanswered = 0
    for line, value in objects(source):
        try:
            conversation = read(line, value)
        except TraceProblem as problem:
            if settings.on_bad_row == "error":
                raise
            bad += 1
            problems += [problem.args] if len(problems) < 20 else []
            continue
        unanswered += not _add(rows, conversation)
    found = [("text", len(rows.inputs), 0, lengths_said(settings, rows.block_size))]
    found.append(
        ("no-times", len(rows.inputs), 0, "the file has no times: sessions start at 0, turns follow at once")
    )
    if unanswered:
        said = f"{unanswered} conversations without an answer hold no request"
        found.append(("no-answer", unanswered, 0, said))
    columns = rows.columns(found)
    columns["problems"], columns["problem_counts"] = problems, [("conversation", bad)] if bad else []
    return columns


def _add(rows: TextRows, conversation: Conversation) -> bool:
    """Add one request an answer; returns whether there was any."""
    history, turn, session = b"", 0, len(rows.session_names)
    for answer, text in conversation.turns:
        encoded = rows.encode(text)
        if answer and history:
            rows.add(history, rows.tokens(encoded), session, turn)
            turn += 1
        history += encoded
    waits = bool(conversation.turns) and not conversation.turns[-1][0]
    if waits and history and conversation.asked_tokens is not None:
        rows.add(history, conversation.asked_tokens, session, turn)
        turn += 1
    if turn:
        rows.name_session(conversation.name)
    return bool(turn)
