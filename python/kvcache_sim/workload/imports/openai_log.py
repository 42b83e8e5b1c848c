"""Request logs of proxies and gateways: lines of JSON with a time, a request's body, and the answer.

Bodies of OpenAI, Anthropic and Gemini (``workload.prompts``) are found where gateways and proxies usually put
them: at the top level, in ``request``, ``body`` or ``kwargs``; the answer in ``response`` or ``output``, its
counts in ``usage``, there or at the top level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests, each_line
from kvcache_sim.workload.imports.naming import Logged
from kvcache_sim.workload.imports.source import count_of, json_line, member, ms_of, problem, time_ns
from kvcache_sim.workload.prompts.body import Seen
from kvcache_sim.workload.prompts.read import BODY_MEMBERS, answer_of, is_embedding, prompt_of
from kvcache_sim.workload.prompts.usage import usage_of
from kvcache_sim.workload.readers.format import TIMES, first_row

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_FIRST_TOKENS = ("completionStartTime", "completion_start_time", "first_token_time")
_SESSIONS = ("session_id", "conversation_id", "litellm_session_id", "trace_id")
_BODIES = ("request", "body", "kwargs", "input")
_COUNTS = ("usage", "usageMetadata", "usage_metadata")
_NO_PROMPT = "neither messages nor a prompt: no request for a generation"


def _detect(head: bytes) -> bool:
    keys = set(first_row(head) or ())
    asks = keys & {*BODY_MEMBERS, *_BODIES}
    return bool(keys & set(TIMES)) and bool(asks)


def _read(source: TraceSource, reading: Reading) -> Requests:
    return each_line(source, reading, lambda number, text: _request(number, json_line(number, text), reading))


def _request(number: int, row: Any, reading: Reading) -> Logged | None:
    if not isinstance(row, dict):
        raise problem(number, "not an object", row, "one request a line")
    body, response = _body(row), _inner(member(row, "response", "output"))
    if _failed(row, response):
        reading.notes.leave_out(number, "answered with an error")
        return None
    prompt = None if is_embedding(body, response) else prompt_of(body, reading.notes.seen)
    if prompt is None:
        reading.notes.leave_out(number, _NO_PROMPT)
        return None
    at = time_ns(member(row, *TIMES))
    if at is None:
        raise problem(number, "no time", member(row, *TIMES), f"a date in one of {', '.join(TIMES)}")
    inputs, outputs, cached = usage_of(member(response, *_COUNTS), member(row, *_COUNTS), row)
    answer = answer_of(response, Seen())
    if outputs is None and answer is None:
        outputs = (
            count_of(number, body, "max_completion_tokens", "max_tokens", "max_output_tokens")
            or reading.answer_tokens
        )
        if outputs is None:
            reading.notes.leave_out(
                number, "nothing says how long the answer was (--answer-tokens assumes it)"
            )
            return None
        reading.notes.remark(
            "answers that the log does not have count as long as max_tokens or --answer-tokens says"
        )
    if inputs == 0 or not prompt:
        reading.notes.leave_out(number, "an empty prompt")
        return None
    measured = {} if cached is None else {"cached_tokens": float(cached)}
    first = time_ns(member(row, *_FIRST_TOKENS))
    if first is not None and first >= at:
        measured["ttft_ms"] = ms_of(first - at)
    session = str(member(row, *_SESSIONS) or "")
    return Logged(at, prompt, answer, inputs, outputs, session, measured)


def _body(row: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the messages or the prompt; the row itself if there is none."""
    for name in _BODIES:
        inner = _inner(row.get(name))
        if isinstance(inner, dict) and not inner.keys().isdisjoint(BODY_MEMBERS):
            return inner
    return row


def _inner(value: Any) -> Any:
    """Return the ``body`` of a request or response that is logged with its status, else the value itself."""
    inner = member(value, "body")
    return inner if isinstance(inner, dict) else value


def _failed(row: dict[str, Any], response: Any) -> bool:
    status = member(row, "status", "status_code") or member(row.get("response"), "status_code")
    bad = (isinstance(status, int) and status >= 400) or status in ("failure", "error")
    return bad or member(row, "error") is not None or member(response, "error") is not None


KIND = LogKind(
    "openai",
    "JSON lines of a proxy or gateway: a time, a body of OpenAI, Anthropic or Gemini, response or usage",
    _detect,
    _read,
)
