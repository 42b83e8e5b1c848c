"""vLLM's own log with ``--enable-log-requests``; it has prompts only at ``--log-level DEBUG``.

A request is ``Received request ID: params: SamplingParams(…)``, before it at DEBUG ``Request ID details:
prompt: …, prompt_token_ids: […]``, and after it with ``--enable-log-outputs`` ``Generated response ID``.
The clock of the lines has whole seconds and no year. Source: vllm 0.33.0,
``entrypoints/serve/utils/request_logger.py``, ``logger.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests, each_line
from kvcache_sim.workload.imports.naming import Logged
from kvcache_sim.workload.imports.source import log_clock_ns, problem

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_CLOCK = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?:\x1b\[\d*m)? (?:\x1b\[\d*m)?(\d\d-\d\d \d\d:\d\d:\d\d) "
)
_DETAILS = re.compile(
    r"Request (\S+) details: prompt: .*prompt_token_ids: (\[[\d, ]*\]|None), prompt_embeds shape: "
)
_RECEIVED = re.compile(r"Received request (\S+): params: (\w+)\(")
_MAX_TOKENS = re.compile(r"\bmax_tokens=(\d+)")
_OUTPUT = re.compile(
    r"Generated response (\S+?)(?: \(streaming (\w+)\))? details: output_token_ids: (\[[\d, ]*\])"
)
_ABORTED = re.compile(r"Request(?:\(s\))? (\S+) aborted\.")


@dataclass(slots=True)
class _Open:
    """A request with lines still to come."""

    line: int
    at_ns: int = -1
    prompt: list[int] | None = None
    max_tokens: int | None = None
    answer: list[int] | None = None
    aborted: bool = False


def _detect(head: bytes) -> bool:
    text = head.decode("utf-8", "replace")
    return bool(_CLOCK.search(text)) and bool(_RECEIVED.search(text) or _DETAILS.search(text))


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
    for request in open_requests.values():
        if logged := _logged(request, reading):
            yield request.line, logged
    reading.notes.remark("the log's clock has whole seconds: requests of one second arrive together")


def _look(number: int, text: str, now_ns: int, found: dict[str, _Open]) -> None:
    if match := _DETAILS.search(text):
        request = found.setdefault(match[1], _Open(number))
        request.prompt = None if match[2] == "None" else _integers(match[2])
    elif match := _RECEIVED.search(text):
        request = found.setdefault(match[1], _Open(number))
        request.at_ns = now_ns
        most = _MAX_TOKENS.search(text)
        request.max_tokens = int(most[1]) if most and match[2] == "SamplingParams" else None
    elif match := _OUTPUT.search(text):
        if (known := found.get(match[1])) is not None:
            tokens = _integers(match[3])
            known.answer = [*(known.answer or []), *tokens] if match[2] == "delta" else tokens
    elif (match := _ABORTED.search(text)) and (known := found.get(match[1])) is not None:
        known.aborted = True


def _integers(text: str) -> list[int]:
    return [int(each) for each in text[1:-1].split(",") if each.strip()]


def _logged(request: _Open, reading: Reading) -> Logged | None:
    notes = reading.notes
    if request.at_ns < 0:
        notes.leave_out(request.line, "details of a request that was received before the log begins")
    elif not request.prompt:
        notes.leave_out(request.line, "no prompt_token_ids: vLLM writes them at --log-level DEBUG alone")
    elif request.answer is None and request.max_tokens is None:
        notes.leave_out(
            request.line, "nothing says how long the answer was (no max_tokens, a pooling request)"
        )
    else:
        if request.answer is None:
            notes.remark("answers without --enable-log-outputs at DEBUG count as long as max_tokens allowed")
        if request.aborted:
            notes.remark("requests that were aborted count with the tokens that they had, or were allowed")
        outputs = request.max_tokens if request.answer is None else None
        return Logged(request.at_ns, request.prompt, request.answer, None, outputs)
    return None


KIND = LogKind(
    "vllm",
    "vLLM's log at DEBUG with --enable-log-requests (--enable-log-outputs for answers)",
    _detect,
    _read,
)
