"""Edits that agents make to their context: compaction, and results of tools that are dropped.

Answers, results and times stay. *Compact at N*: before the first call whose prompt would exceed N tokens
comes a call with the same prompt (but a user's new text) and an instruction; its answer, the summary, stands
for all messages from then on. A compaction of the log after one of these is dropped: it would not have been
due. *Drop results*: all but the last so many results of tools become a placeholder, in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value


class Piece(Protocol):
    """A piece of a prompt: its kind (``SEGMENT_KINDS``) and length."""

    @property
    def kind(self) -> str:
        """The kind."""

    @property
    def tokens(self) -> int | None:
        """The tokens."""


P = TypeVar("P", bound=Piece)


class ContextEdit(Value):
    """Edits of a context; None: not made.

    Attributes:
        compact_at_tokens: The longest prompt.
        instruction_tokens: Tokens that ask for a summary.
        summary_tokens: The answer to it.
        wrap_tokens: Text around the summary in the next prompts.
        kept_results: The last results of tools that are not dropped.
        placeholder_tokens: Each dropped result's.
    """

    compact_at_tokens: int | None = None
    instruction_tokens: int = 500
    summary_tokens: int = 2000
    wrap_tokens: int = 50
    kept_results: int | None = None
    placeholder_tokens: int = 12


def parse_compact_at(text: str, window_tokens: int) -> int:
    """Return the longest prompt: tokens, or percent of a context window; raises UsageError."""
    found = re.fullmatch(r"(\d[\d_,]*)(%|k?)", text.strip())
    number = int(re.sub("[_,]", "", found[1])) if found else 0
    if found is None or not number or (found[2] == "%" and number > 100):
        expected = "tokens such as 120000 or 120k, or 1% to 100% of the context window"
        raise UsageError("not a length of prompts", where="--compact-at", got=repr(text), expected=expected)
    return number * window_tokens // 100 if found[2] == "%" else number * (1000 if found[2] else 1)


class EditedContext(Generic[P]):
    """A conversation under an edit; ``made`` makes a new piece of (kind, name, tokens)."""

    def __init__(self, edit: ContextEdit, made: Callable[[str, str, int], P]) -> None:
        self._edit, self._made = edit, made
        #: The pieces that stand for the first ``_replaced`` of each original prompt; None: none do.
        self._before: list[P] | None = None
        self._replaced = 0
        self._last: list[P] = []
        self._count = 0

    def prompts(self, original: Sequence[P], kept: int, answer: Sequence[P]) -> Iterator[list[P]]:
        """Yield the prompts of a call: that of a compaction first, where one is due, and the call's own last.

        Args:
            original: All pieces of its prompt.
            kept: The first of them that are those of the call before and its answer.
            answer: The pieces of its answer.
        """
        if self._before is not None and kept < self._replaced:
            self._before, self._replaced = self._last, len(original)
        prompt = [*(self._before or ()), *original[self._replaced :]]
        limit = self._edit.compact_at_tokens
        if limit is not None and size_tokens(self._dropped(prompt)) > limit:
            news = _last_texts(original[max(kept, self._replaced) :])
            asked = self._made("user", f"instruction {self._count}", self._edit.instruction_tokens)
            yield self._dropped([*prompt[: len(prompt) - news], asked])
            size = self._edit.summary_tokens + self._edit.wrap_tokens
            summary = self._made("user", f"summary {self._count}", size)
            self._before = [*(piece for piece in prompt if piece.kind in ("tools", "system")), summary]
            self._replaced, self._count = len(original) - news, self._count + 1
            prompt = [*self._before, *original[self._replaced :]]
        self._last = [*prompt, *answer]
        yield self._dropped(prompt)

    def _dropped(self, prompt: list[P]) -> list[P]:
        keep = self._edit.kept_results
        results = [at for at, piece in enumerate(prompt) if piece.kind == "tool_result"]
        if keep is None or len(results) <= keep:
            return prompt
        old = set(results[: len(results) - keep])
        return [
            self._made("tool_result", "dropped", self._edit.placeholder_tokens) if at in old else piece
            for at, piece in enumerate(prompt)
        ]


def size_tokens(prompt: Sequence[Piece]) -> int:
    """Return the tokens of a prompt."""
    return sum(piece.tokens or 0 for piece in prompt)


def _last_texts(added: Sequence[Piece]) -> int:
    """Return how many of the last added pieces are a user's text."""
    count = 0
    for piece in reversed(added):
        if piece.kind != "user":
            break
        count += 1
    return count
