"""Prompts of which the answers are not there yet: tokens that stand in for what a model will say."""

from __future__ import annotations

import hashlib
from typing import Any

#: Tokens of an answer whose request does not say how many it may have.
ANSWER_TOKENS = 256


def stand_in(name: str, tokens: int, token_bytes: int) -> bytes:
    """Return ``tokens`` encoded tokens that no other answer has, the same for the same name."""
    return hashlib.shake_256(name.encode("utf-8", "surrogatepass")).digest(tokens * token_bytes)


def said_of_answers(requests: int, without: int) -> list[tuple[str, int, int, str]]:
    """Return the remarks on answers that were made up."""
    found = [
        (
            "no-answer",
            requests,
            0,
            "the file has no answers: a later turn's prompt holds as many unknown tokens as were allowed",
        )
    ]
    if without:
        text = f"{without} turns do not limit their answers: {ANSWER_TOKENS} tokens are assumed"
        found.append(("no-limit", without, 0, text))
    return found


def text_of(content: Any) -> str | None:
    """Return the text of a message's content, of its parts those that are text; None for anything else."""
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        whole = len(parts) == len(content) and all(isinstance(part, str) for part in parts)
        return "".join(map(str, parts)) if whole else None
    return content if isinstance(content, str) else "" if content is None else None
