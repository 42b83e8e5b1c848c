"""vLLM's own log with ``--enable-log-requests``; since 0.11 it has prompts only at ``--log-level DEBUG``.

A request is ``Received request ID: params: SamplingParams(…)``, before it at DEBUG ``Request ID details:
prompt: …, prompt_token_ids: […]``, and after it with ``--enable-log-outputs`` ``Generated response ID``.
Up to 0.10 the first line has everything: ``Received request ID: prompt: '…', params: SamplingParams(…),
prompt_token_ids: […] | None, …``; chats have the rendered text alone.
The clock of the lines has whole seconds and no year. Source: vllm 0.33.0,
``entrypoints/serve/utils/request_logger.py``, ``logger.py``; logs of 0.6 to 0.10.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests, each_line
from kvcache_sim.workload.imports.naming import Logged
from kvcache_sim.workload.imports.source import json_line, log_clock_ns, problem, text_literal, tokens_of

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_CLOCK = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?:\x1b\[\d*m)? (?:\x1b\[\d*m)?(\d\d-\d\d \d\d:\d\d:\d\d) "
)
#: A text as Python writes it, so that what it says of parameters or tokens is not taken for them.
_TEXT = r"""('[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"|None)"""
_TOKENS = r"prompt_token_ids: (\[[\d, ]*\]|None), "
_DETAILS = re.compile(rf"Request (\S+) details: prompt: {_TEXT}, {_TOKENS}")
_RECEIVED = re.compile(rf"Received request (\S+): (?:prompt: {_TEXT}, )?params: (\w+)\(")
_TOKENS_AT_THE_END = re.compile(rf".*\), {_TOKENS}")
_MAX_TOKENS = re.compile(r"\bmax_tokens=(\d{1,9})\b")
_OUTPUT = re.compile(
    r"Generated response (\S+?)(?: \(streaming (\w+)\))? details: output_token_ids: (\[[\d, ]*\])"
)
_ABORTED = re.compile(r"Request(?:\(s\))? (\S+) aborted\.|Aborted request (\S+)\.")
#: A prompt may be longer than the bytes that detection sees.
_SIGN = re.compile(r"Received request \S+: (?:prompt|params): |Request \S+ details: prompt: ")


@dataclass(slots=True)
class _Open:
    """A request with lines still to come."""

    line: int
    at_ns: int = -1
    prompt: str | list[int] | None = None
    max_tokens: int | None = None
    answer: list[int] | None = None
    aborted: bool = False


def _detect(head: bytes) -> bool:
    text = head.decode("utf-8", "replace")
    return bool(_CLOCK.search(text)) and bool(_SIGN.search(text))


def _read(source: TraceSource, reading: Reading) -> Requests:
    open_requests: dict[str, _Open] = {}
    now_ns = 0

    def take(number: int, text: str) -> None:
        nonlocal now_ns
        if found := _CLOCK.search(text):
            try:
                now_ns = log_clock_ns(found[1], now_ns)
            except ValueError:
                raise problem(number, "no such date", found[1], "MM-DD HH:MM:SS") from None
        _look(number, text, now_ns, open_requests)

    yield from each_line(source, reading, take)
    if not open_requests:
        expected = "lines of vllm serve --enable-log-requests"
        raise problem(0, "vLLM's log without a request", expected=expected)
    for request in open_requests.values():
        if logged := _logged(request, reading):
            yield request.line, logged
    reading.notes.remark("the log's clock has whole seconds: requests of one second arrive together")


def _look(number: int, text: str, now_ns: int, found: dict[str, _Open]) -> None:
    if match := _DETAILS.search(text):
        request = found.setdefault(match[1], _Open(number))
        request.prompt = _prompt(number, match[2], match[3])
    elif match := _RECEIVED.search(text):
        request = found.setdefault(match[1], _Open(number))
        request.at_ns, rest = now_ns, text[match.end() :]
        if match[2] is not None:
            tokens = _TOKENS_AT_THE_END.match(rest)
            request.prompt = _prompt(number, match[2], tokens[1] if tokens else "None")
        most = _MAX_TOKENS.search(rest)
        request.max_tokens = int(most[1]) if most and match[3] == "SamplingParams" else None
    elif match := _OUTPUT.search(text):
        if (known := found.get(match[1])) is not None:
            answer = tokens_of(number, json_line(number, match[3]))
            known.answer = [*(known.answer or []), *answer] if match[2] == "delta" else answer
    elif (match := _ABORTED.search(text)) and (known := found.get(match[1] or match[2])) is not None:
        known.aborted = True


def _prompt(number: int, text: str, tokens: str) -> str | list[int] | None:
    """Return the token ids, else the text of a prompt; None without both."""
    if tokens != "None":
        return tokens_of(number, json_line(number, tokens))
    return text_literal(number, text)


def _logged(request: _Open, reading: Reading) -> Logged | None:
    notes = reading.notes
    if request.at_ns < 0:
        notes.leave_out(request.line, "details of a request that was received before the log begins")
    elif not request.prompt:
        notes.leave_out(request.line, "no prompt_token_ids: vLLM writes them at --log-level DEBUG alone")
    elif request.answer is None and request.max_tokens is None and not reading.answer_tokens:
        reason = (
            "nothing says how long the answer was (no max_tokens, or pooling): --answer-tokens assumes it"
        )
        notes.leave_out(request.line, reason)
    else:
        if request.answer is None:
            notes.remark("answers without --enable-log-outputs at DEBUG count as long as max_tokens allowed")
        if request.aborted:
            notes.remark("requests that were aborted count with the tokens that they had, or were allowed")
        outputs = (request.max_tokens or reading.answer_tokens) if request.answer is None else None
        return Logged(request.at_ns, request.prompt, request.answer, None, outputs)
    return None


KIND = LogKind(
    "vllm",
    "vLLM's log with --enable-log-requests, since 0.11 at DEBUG (--enable-log-outputs for answers)",
    _detect,
    _read,
)
