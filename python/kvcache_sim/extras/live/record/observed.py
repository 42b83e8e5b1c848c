"""One forwarded request and its answer: their times and tokens."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kvcache_sim.extras.live.parsing import Chat, Completion, parsed
from kvcache_sim.extras.live.refusals import Refusal
from kvcache_sim.extras.live.rendering import rendered, rendered_body, tokens_of
from kvcache_sim.extras.live.tokenizer import Tokenizer
from kvcache_sim.workload.prompts.body import Seen
from kvcache_sim.workload.prompts.stream import AnswerChunks

#: Recorded paths; all other requests are forwarded without a record.
PATHS: dict[bytes, Any] = {
    b"/v1/chat/completions": Chat,
    b"/v1/completions": Completion,
    b"/v1/messages": dict[str, Any],
    b"/v1/responses": dict[str, Any],
}
_DATA, _EVENT = b"data: ", b"event: "


@dataclass(slots=True)
class Observed:
    """A forwarded request; times in ns of the wall clock. Texts are dropped when it has ended."""

    kind: Any
    arrival_ns: int
    body: bytearray = field(default_factory=bytearray)
    session: str = ""
    status: int = 0
    tokens_ns: list[int] = field(default_factory=list)
    answer: AnswerChunks = field(default_factory=AnswerChunks)
    _rest: bytes = b""
    _streams: bool | None = None

    def answered(self, piece: bytes, now_ns: int) -> None:
        """Read a forwarded piece of the answer's body."""
        self._rest += piece
        if self._streams is None:
            start = self._rest.lstrip()[: len(_EVENT)]
            if any(sign.startswith(start) and start != sign for sign in (_DATA, _EVENT)):
                return  # too short to decide
            self._streams = start.startswith((_DATA, _EVENT))
        if not self._streams:
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if line.startswith(_DATA) and not line.startswith(b"data: [DONE]"):
                self._chunk(line[len(_DATA) :], now_ns)

    def _chunk(self, text: bytes, now_ns: int) -> None:
        chunk = _decoded(text)
        with suppress(AttributeError, TypeError):  # chunks of another form are forwarded all the same
            self.tokens_ns += [now_ns] * self.answer.add(chunk or {})

    def ended(self) -> None:
        """Read a whole answer that was not a stream."""
        if self._streams is False:
            self.answer.end(_decoded(self._rest) or {})
        self._rest = b""

    def tokens(self, tokenizer: Tokenizer, seen: Seen) -> tuple[list[int], list[int]] | None:
        """Return the tokens of prompt and answer by a tokenizer; None for an unreadable body.

        A prompt of several texts counts as its first text; ``seen`` counts what is not rendered.
        """
        try:
            asked = parsed(bytes(self.body), self.kind)
            body: dict[str, Any] = msgspec.json.decode(self.body)
            if isinstance(asked, Completion) and isinstance(asked.prompt, list):
                whole = not asked.prompt or isinstance(asked.prompt[0], int)
                body = {"prompt": asked.prompt if whole else asked.prompt[:1]}
            prompt = tokens_of(rendered_body(body, tokenizer, seen), tokenizer)
        except Refusal:
            return None
        return prompt, tokens_of(rendered(self.answer.message(), tokenizer), tokenizer)


def _decoded(text: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
