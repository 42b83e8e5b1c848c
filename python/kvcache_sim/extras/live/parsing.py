"""Bodies of requests, checked member by member."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from kvcache_sim.extras.live.refusals import Refusal

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Token = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class StreamOptions(msgspec.Struct, frozen=True):
    """Content of a stream in addition to its tokens."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a chat."""

    role: str
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None


class _Common(msgspec.Struct, kw_only=True, frozen=True):
    model: str | None = None
    max_tokens: _Count | None = None
    min_tokens: _Count = 0
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool = False
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0
    cache_salt: str | None = None


class Completion(_Common, frozen=True):
    """The body of ``/v1/completions``."""

    prompt: str | list[str | _Token | list[_Token]]
    echo: bool = False


class Chat(_Common, frozen=True):
    """The body of ``/v1/chat/completions``."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    functions: list[dict[str, Any]] | None = None
    response_format: dict[str, Any] | None = None
    max_completion_tokens: _Count | None = None


class Tokenize(msgspec.Struct, frozen=True):
    """The body of ``/tokenize``."""

    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[dict[str, Any]] | None = None
    model: str | None = None
    return_token_strs: bool = False


class Detokenize(msgspec.Struct, frozen=True):
    """The body of ``/detokenize``."""

    tokens: list[_Token]
    model: str | None = None


def parsed(body: bytes, kind: Any) -> Any:
    """Return a body as the struct ``kind``; Refusal 400 if it is no JSON or a member is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        param = path.rstrip("`").lstrip(".") or None
        raise Refusal(400, f"1 validation errors:\n  {message}", param) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"the body is no JSON: {error}") from None
