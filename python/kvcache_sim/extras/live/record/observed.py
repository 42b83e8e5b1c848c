"""One forwarded request and its answer: their times and tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from kvcache_sim.extras.live.parsing import Chat, Completion, chat_messages, parsed
from kvcache_sim.extras.live.refusals import Refusal
from kvcache_sim.extras.live.tokenizer import Tokenizer
from kvcache_sim.workload.chat_template import chat_prompt

#: Recorded paths; all other requests are forwarded without a record.
PATHS = {b"/v1/chat/completions": Chat, b"/v1/completions": Completion}
_DATA = b"data: "


@dataclass(slots=True)
class Observed:
    """A forwarded request; times in ns of the wall clock. Texts are dropped when it has ended."""

    kind: Any
    arrival_ns: int
    body: bytearray = field(default_factory=bytearray)
    session: str = ""
    status: int = 0
    tokens_ns: list[int] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    said: list[str] = field(default_factory=list)
    _rest: bytes = b""
    _streams: bool | None = None

    def answered(self, piece: bytes, now_ns: int) -> None:
        """Read a forwarded piece of the answer's body."""
        self._rest += piece
        if self._streams is None:
            start = self._rest.lstrip()[: len(_DATA)]
            if _DATA.startswith(start) and start != _DATA:
                return  # too short to decide
            self._streams = start == _DATA
        if not self._streams:
            return
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            if line.startswith(_DATA) and not line.startswith(b"data: [DONE]"):
                self._chunk(line[len(_DATA) :], now_ns)

    def _chunk(self, text: bytes, now_ns: int) -> None:
        chunk = _decoded(text)
        if chunk is None:
            return
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or ():
            said = choice.get("text") or (choice.get("delta") or {}).get("content")
            if said:
                self.tokens_ns.append(now_ns)
                if not choice.get("index"):
                    self.said.append(said)

    def ended(self) -> None:
        """Read a whole answer that was not a stream."""
        if self._streams is False:
            whole = _decoded(self._rest) or {}
            self.usage = whole.get("usage")
            for choice in (whole.get("choices") or ())[:1]:
                said = choice.get("text") or (choice.get("message") or {}).get("content")
                self.said.append(said or "")
        self._rest = b""

    def tokens(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]] | None:
        """Return the tokens of prompt and answer by a tokenizer; None for an unreadable body.

        A prompt of several texts counts as its first text.
        """
        try:
            asked = parsed(bytes(self.body), self.kind)
        except Refusal:
            return None
        answer = tokenizer.encode("".join(self.said))
        if isinstance(asked, Chat):
            return tokenizer.encode(chat_prompt(chat_messages(asked.messages))), answer
        prompt = asked.prompt
        first = prompt if isinstance(prompt, str) else prompt[0] if prompt else ""
        if isinstance(first, int):
            return [token for token in prompt if isinstance(token, int)], answer
        return (tokenizer.encode(first) if isinstance(first, str) else list(first)), answer


def _decoded(text: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
