"""The JSON of answers, whole and in chunks; constant parts are encoded once per request."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from kvcache_sim.extras.live.generation import Generation

_encode = msgspec.json.encode
#: The text of a token as JSON; a few thousand texts recur.
encoded = lru_cache(1 << 14)(_encode)
DONE = b"data: [DONE]\n\n"


class Said(NamedTuple):
    """The text of a choice, and why it ended."""

    text: str
    finish_reason: str


class Wording:
    """Encodes the answer to one request; ``reports_cached`` adds the cached tokens to its usage."""

    def __init__(
        self, generation: Generation, model: str, request_id: str, created_s: int, reports_cached: bool
    ) -> None:
        kind = "chatcmpl" if generation.is_chat else "cmpl"
        self.id = f"{kind}-{request_id or uuid4().hex}"
        self.generation, self._reports_cached = generation, reports_cached
        self._created, self._model = created_s, model
        chunk = "chat.completion.chunk" if generation.is_chat else "text_completion"
        head = self._head(chunk)
        #: A chunk up to its choices.
        self._open = b"data: " + _encode(head)[:-1] + b',"choices":['
        self._each = generation.options.continuous_usage_stats

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self._created, "model": self._model}

    def opening(self, choice: int) -> bytes:
        """Return the first chunk of a chat's choice, sent with its first token; empty for a completion."""
        if not self.generation.is_chat:
            return b""
        delta = b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return self._open + delta % choice + self._close(0)

    def chunk(self, choice: int, text: str, finish: str | None, out: int) -> bytes:
        """Return the chunk of some tokens, the last with its finish reason; ``out``: tokens so far."""
        said, reason = _encode(text), b"null" if finish is None else b'"%s"' % finish.encode()
        if self.generation.is_chat:
            body = b'{"index":%d,"delta":{"content":%s},"logprobs":null,"finish_reason":%s}'
        else:
            body = b'{"index":%d,"text":%s,"logprobs":null,"finish_reason":%s}'
        return self._open + body % (choice, said, reason) + self._close(out)

    def plain(self, choice: int) -> tuple[bytes, bytes] | None:
        """Return the bytes before and after the text of a chunk; None if they change with each chunk."""
        if self._each:
            return None
        before = b'{"index":%d,"delta":{"content":' if self.generation.is_chat else b'{"index":%d,"text":'
        closes = b"}" if self.generation.is_chat else b""
        return self._open + before % choice, closes + b',"logprobs":null,"finish_reason":null}]}\n\n'

    def _close(self, out: int) -> bytes:
        usage = b',"usage":' + _encode(self.usage(out, None)) if self._each else b""
        return b"]" + usage + b"}\n\n"

    def last(self, out: int, cached: int) -> bytes:
        """Return the end of a stream: its usage, if requested, and the end marker."""
        if not self.generation.options.include_usage:
            return DONE
        return self._open + b'],"usage":' + _encode(self.usage(out, cached)) + b"}\n\n" + DONE

    def usage(self, out: int, cached: int | None) -> dict[str, Any]:
        """Return the usage after ``out`` tokens; ``cached`` once it is known."""
        prompt = self.generation.prompt_tokens
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + out,
            "completion_tokens": out,
        }
        if cached is not None and self._reports_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage

    def whole(self, said: list[Said], out: int, cached: int) -> dict[str, Any]:
        """Return the whole answer from what each choice said."""
        chat = self.generation.is_chat
        choices: list[dict[str, Any]] = []
        for index, (text, reason) in enumerate(said):
            body = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choices.append({"index": index, **body, "logprobs": None, "finish_reason": reason})
        head = self._head("chat.completion" if chat else "text_completion")
        return {**head, "choices": choices, "usage": self.usage(out, cached)}
