"""The texts of answers: words drawn by a seed, so that the same run has the same texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

from kvcache_sim.base.rng import stream
from kvcache_sim.extras.live.tokenizer import Tokenizer

_LINES = (
    "the cache keeps what it can and will in an hour forget what has faded so a prompt that begins like ",
    "another one finds its first blocks ready while the rest is computed and each answer is as long as the ",
    "request said it may be because only the time between tokens matters here and not what they say",
)
T = TypeVar("T")
_WORDS = "".join(_LINES).split()
#: Number of words drawn once; an answer starts at a position in them and wraps around.
_DRAWN = 4096
#: Preceding tokens that the text of a token may depend on.
_CONTEXT = 4


class Part(Sequence[T]):
    """A part of a long list, without a copy; a slice of it is a list."""

    __slots__ = ("_size", "_source", "_start")

    def __init__(self, source: list[T], start: int, size: int) -> None:
        self._source, self._start, self._size = source, start, size

    def __len__(self) -> int:
        """Return the number of elements."""
        return self._size

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        """Return an element, or the elements of a slice as a list."""
        if isinstance(index, slice):
            first, last, step = index.indices(self._size)
            return self._source[self._start + first : self._start + last : step]
        if not 0 <= index < self._size:
            raise IndexError(index)
        return self._source[self._start + index]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: tokens, the text that each token adds, and the reason of its end.

    Without stops both are parts of the text that all answers share.
    """

    tokens: Sequence[int]
    texts: Sequence[str]
    finish_reason: str


class Answers:
    """A long text in tokens; each answer is a part of it from a position that the seed determines."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        drawn = stream(seed, "live/words").integers(0, len(_WORDS), _DRAWN).tolist()
        tokens = tokenizer.encode(" ".join(_WORDS[word] for word in drawn) + " ")
        self._tokens, self._texts = tokens, _pieces(tokenizer, tokens)
        self._size = len(tokens)
        self._starts = stream(seed, "live/answers")

    def draw(self, tokens: int, stops: list[str], min_tokens: int) -> Answer:
        """Return an answer of ``tokens`` tokens, or fewer if its text contains one of ``stops``.

        The text ends before the stop. A stop within the first ``min_tokens`` tokens is ignored.
        """
        start = int(self._starts.integers(0, self._size))
        while start + tokens > len(self._tokens):  # wrap around; stays this long
            self._tokens.extend(self._tokens[: self._size])
            self._texts.extend(self._texts[: self._size])
        drawn, texts = Part(self._tokens, start, tokens), Part(self._texts, start, tokens)
        return _stopped(drawn[:], texts[:], stops, min_tokens) if stops else Answer(drawn, texts, "length")


def _pieces(tokenizer: Tokenizer, tokens: list[int]) -> list[str]:
    """Return the text that each token adds to the text of the preceding tokens."""
    pieces = []
    for at in range(len(tokens)):
        before = tokens[max(0, at - _CONTEXT) : at]
        text = tokenizer.decode([*before, tokens[at]])
        pieces.append(text[len(tokenizer.decode(before)) :])
    return pieces


def _stopped(tokens: list[int], texts: list[str], stops: list[str], min_tokens: int) -> Answer:
    text = "".join(texts)
    free = sum(map(len, texts[:min_tokens]))
    found = [(at + len(stop), at) for stop in stops if (at := _first(text, stop, free)) >= 0]
    if not found:
        return Answer(tokens, texts, "length")
    end, cut = min(found)
    said = kept = 0
    shown: list[str] = []
    for piece in texts:
        shown.append(piece[: max(cut - said, 0)])
        said += len(piece)
        kept += 1
        if said >= end:
            break
    return Answer(tokens[:kept], shown, "stop")


def _first(text: str, stop: str, free: int) -> int:
    """Return the first index of ``stop`` that ends after the first ``free`` characters; -1: none."""
    return text.find(stop, max(free - len(stop) + 1, 0)) if stop else -1
