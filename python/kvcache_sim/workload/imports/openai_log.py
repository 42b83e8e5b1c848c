"""Request logs of proxies and gateways: lines of JSON with a time, a request's body, and the answer.

Bodies of OpenAI, Anthropic and Gemini (``workload.prompts``) are found where gateways and proxies usually put
them: at the top level, in ``request``, ``body`` or ``kwargs``; the answer in ``response`` or ``output``, its
counts in ``usage``, there or at the top level.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvcache_sim.workload.imports.calls import (
    SESSIONS,
    USAGES,
    Call,
    answered,
    log_of_calls,
    of_text,
    wrong_of,
)
from kvcache_sim.workload.imports.source import problem
from kvcache_sim.workload.prompts.body import member
from kvcache_sim.workload.prompts.read import BODY_MEMBERS, is_embedding
from kvcache_sim.workload.readers.dates import time_ns
from kvcache_sim.workload.readers.format import SIGNS, TIMES, first_object

_FIRST_TOKENS = ("completionStartTime", "completion_start_time", "first_token_time")
_BODIES = ("request", "body", "kwargs", "input", "request_body", "requestBody")
_RESPONSES = ("response", "output", "response_body", "responseBody")
_NO_PROMPT = "neither messages nor a prompt: no request for a generation"


def _detect(head: bytes) -> bool:
    keys = set(first_object(head))
    asks = keys & {*BODY_MEMBERS, *_BODIES}
    return bool(keys & set(TIMES)) and bool(asks) and not SIGNS["mooncake-texts"](head)


def _calls(number: int, row: Any) -> Iterator[Call]:
    if not isinstance(row, dict):
        raise problem(number, "not an object", row, "one request a line")
    body, response = _body(row), answered(_inner(member(row, *_RESPONSES)))
    begins = time_ns(member(row, *TIMES))
    wrong = wrong_of(row, row.get("response"), response)
    is_bare = member(body, *BODY_MEMBERS) is None or body.get("messages") == {}
    if not wrong and (is_bare or is_embedding(body, response)):
        wrong = _NO_PROMPT
    if begins is None and not wrong:
        raise problem(number, "no time", member(row, *TIMES), f"a date in one of {', '.join(TIMES)}")
    yield Call(
        begins,
        body,
        response,
        (member(response, *USAGES), member(row, *USAGES), row),
        member(row, *SESSIONS),
        time_ns(member(row, *_FIRST_TOKENS)),
        wrong,
    )


def _body(row: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the messages or the prompt; the row itself if there is none."""
    for name in _BODIES:
        inner = _inner(row.get(name))
        if isinstance(inner, dict) and not inner.keys().isdisjoint(BODY_MEMBERS):
            return inner
    return row


def _inner(value: Any) -> Any:
    """Return the ``body`` of a request or response that is logged with its status, else the value itself."""
    inner = of_text(member(of_text(value), "body"))
    return inner if isinstance(inner, dict) else of_text(value)


KIND = log_of_calls(
    "openai",
    "a proxy's or gateway's rows: a time, a body of OpenAI, Anthropic or Gemini, response or usage",
    _detect,
    _calls,
)
