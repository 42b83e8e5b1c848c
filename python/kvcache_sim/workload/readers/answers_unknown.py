"""Placeholder tokens for answers that the file lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.readers.agent_rows import waiting
from kvcache_sim.workload.readers.chained_text import lengths_said
from kvcache_sim.workload.readers.findings import Finding

if TYPE_CHECKING:
    from kvcache_sim._core import RawColumns
    from kvcache_sim.workload.readers.chained_text import TextRows
    from kvcache_sim.workload.readers.settings import ReadSettings

#: Tokens of an answer without a limit in its request.
ANSWER_TOKENS = 256


def stand_in(name: str, tokens: int, token_bytes: int) -> bytes:
    """Return ``tokens`` encoded tokens that occur in no other answer, equal for equal names."""
    return hashlib.shake_256(name.encode("utf-8", "surrogatepass")).digest(tokens * token_bytes)


def columns_without_answers(
    rows: TextRows, settings: ReadSettings, waits: Sequence[Sequence[int]], without: int
) -> RawColumns:
    """Return the columns of rows with placeholder answers, and the requests that each waits for.

    ``without`` is the number of turns without a limit.
    """
    found = [Finding("text", len(rows.inputs), 0, lengths_said(settings, rows.block_size))]
    columns = rows.columns(found + _said_of_answers(len(rows.inputs), without))
    columns["after"], columns["also_after"] = waiting(waits)
    return columns


def _said_of_answers(requests: int, without: int) -> list[Finding]:
    """Return the notes on placeholder answers."""
    found = [
        Finding(
            "no-answer",
            requests,
            0,
            "the file has no answers: a later turn's prompt holds as many unknown tokens as were allowed",
        )
    ]
    if without:
        text = f"{without} turns do not limit their answers: {ANSWER_TOKENS} tokens are assumed"
        found.append(Finding("no-limit", without, 0, text))
    return found


def text_of(content: Any) -> str | None:
    """Return the text of a message's content, of its parts the text parts; None for anything else."""
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        whole = len(parts) == len(content) and all(isinstance(part, str) for part in parts)
        return "".join(map(str, parts)) if whole else None
    return content if isinstance(content, str) else "" if content is None else None
