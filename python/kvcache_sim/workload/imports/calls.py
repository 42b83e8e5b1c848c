"""Calls of models as gateways, tracers and load generators log them: one reader for all.

A format finds the parts of a call in its own members (``Call``); what they mean is decided here: counts of
the log come before counts of its texts, a call that failed is left out and counted, and one without texts
keeps its lengths alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.imports.chains import Chains
from kvcache_sim.workload.imports.documents import each_document
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Logged
from kvcache_sim.workload.imports.source import ms_of, problem
from kvcache_sim.workload.prompts.body import BodyError, Seen, count, member
from kvcache_sim.workload.prompts.read import BODY_MEMBERS, answer_of, prompt_of
from kvcache_sim.workload.prompts.render import Said
from kvcache_sim.workload.prompts.stream import joined
from kvcache_sim.workload.prompts.usage import usage_of

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

#: Members with a vendor's counts.
USAGES = ("usage", "usageMetadata", "usage_metadata")
#: Members of a log's row that may hold its conversation.
SESSIONS = ("session_id", "sessionId", "conversation_id", "litellm_session_id", "trace_id")


class Call(NamedTuple):
    """The parts of one call; None where its format does not say.

    ``at_ns`` and ``first_ns`` are its start and its first token; ``body`` and ``response`` are those of the
    API, or a text; ``usage`` has objects that may hold a vendor's counts, before those of the response.
    ``wrong`` is the reason why it is no request.
    """

    at_ns: int | None
    body: Any = None
    response: Any = None
    usage: tuple[Any, ...] = ()
    session: Any = None
    first_ns: int | None = None
    wrong: str = ""
    #: Tokens allowed for the answer, if the body does not say it.
    most_tokens: Any = None
    #: Names of its span and of the span above it.
    span: str = ""
    parent: str = ""


#: The calls of one document or line; raises TraceProblem for one of another kind.
Calls = Callable[[int, Any], Iterable[Call]]


def log_of_calls(
    name: str,
    about: str,
    detect: Callable[[bytes], bool],
    calls: Calls,
    remark: str = "",
    is_traced: bool = False,
) -> LogKind:
    """Return a kind of log whose lines or documents have calls; ``remark`` is said of each.

    ``is_traced``: calls are spans, which may repeat.
    """

    def read(source: TraceSource, reading: Reading) -> Requests:
        reading.notes.remarks.update({remark: None} if remark else {})
        found = calls_of(source, reading, calls)
        return requests_of(_without_repeats(found) if is_traced else found, reading)

    return LogKind(name, about, detect, read)


def calls_of(source: TraceSource, reading: Reading, calls: Calls) -> Iterator[tuple[int, Call]]:
    """Yield (line, call) of each call; a bad line or document is refused, or counted if they are skipped."""
    for number, found in each_document(source, reading, lambda number, value: [*calls(number, value)]):
        yield from ((number, call) for call in found)


def _without_repeats(calls: Iterable[tuple[int, Call]]) -> Iterator[tuple[int, Call]]:
    """Yield the calls; a span above another call is an agent's or a framework's and repeats its counts."""
    found = list(calls)
    parents = {call.span: call.parent for _, call in found}
    above: set[str] = set()
    for _, call in found:
        parent = call.parent
        while not call.wrong and parent in parents and parent not in above:
            above.add(parent)
            parent = parents[parent]
    seen: set[tuple[str, int | None]] = set()
    for number, call in found:
        repeats = "a span above other calls, whose counts it repeats" if call.span in above else ""
        repeats = "a span that the log has already" if (call.span, call.at_ns) in seen else repeats
        seen.update([(call.span, call.at_ns)] if call.span else [])
        yield number, call._replace(wrong=call.wrong or repeats)


def requests_of(calls: Iterable[tuple[int, Call]], reading: Reading) -> Requests:
    """Yield (line, request) of each call that is one, and note what they lack."""
    found = _Requests(reading)
    for number, call in calls:
        try:
            if request := found.take(number, call):
                yield number, request
        except (TraceProblem, BodyError) as bad:
            reading.skip(number, bad)
    found.remark()


class _Requests:
    """Makes requests of calls, and says at the end what they lack."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._chains = reading, Chains()
        self._requests = self._bare = self._unlinked = 0

    def take(self, number: int, call: Call) -> Logged | None:
        """Return the request of a call; None if it is left out."""
        if call.wrong:
            self._reading.notes.leave_out(number, call.wrong)
            return None
        if call.at_ns is None:
            raise problem(number, "no time", expected="the date of the call, or a number of its clock")
        body = self._chains.whole(call.body)
        chain = self._chains.add(call.body, body, call.response)
        prompt: Said = prompt_of(body, self._reading.notes.seen) if isinstance(body, dict) else body
        inputs, outputs, cached = usage_of(*call.usage, member(call.response, *USAGES))
        answer = answer_of(call.response, Seen())
        if outputs is None and answer is None:
            outputs = self._assumed(number, call)
        if prompt is None and outputs is not None:
            answer = None  # without a prompt its blocks have no names
        if wrong := _unusable(prompt, inputs, answer, outputs):
            self._reading.notes.leave_out(number, wrong)
            return None
        measured = {} if cached is None else {"cached_tokens": float(cached)}
        if call.first_ns is not None and call.first_ns >= call.at_ns:
            measured["ttft_ms"] = ms_of(call.first_ns - call.at_ns)
        self._requests += 1
        unlinked = body is None and call.body is not None
        self._unlinked += unlinked
        self._bare += not prompt and not unlinked
        session = str(call.session or chain)
        return Logged(call.at_ns, prompt or None, answer, inputs, outputs, session, measured)

    def _assumed(self, number: int, call: Call) -> int | None:
        """Return the tokens of an answer that the log does not have: as many as were allowed."""
        most = count(call.body, "max_completion_tokens", "max_output_tokens", "max_tokens")
        most = most or count({"max_tokens": call.most_tokens}, "max_tokens")
        most = most or self._reading.answer_tokens
        if most:
            said = "answers that the log does not have count as long as max_tokens or --answer-tokens says"
            self._reading.notes.remark(said)
        return most

    def remark(self) -> None:
        """Note how many requests have no texts, or only those after an answer that the log does not have."""
        said = {
            f"{self._unlinked:,} requests without block ids continue an answer that the log does not have": (
                self._unlinked
            ),
            f"{self._bare:,} of {self._requests:,} requests have no texts in the log, so no block ids: their "
            "lengths are known, not what they share": self._bare,
        }
        self._reading.notes.remarks.update({text: None for text, count in said.items() if count})


def _unusable(prompt: Said, inputs: int | None, answer: Said, outputs: int | None) -> str:
    """Return why a call is no request; "" if it is one."""
    if inputs == 0 or (inputs is None and prompt is not None and not prompt):
        return "an empty prompt"
    if inputs is None and prompt is None:
        return "neither texts nor counts of tokens"
    if outputs is None and answer is None:
        return "nothing says how long the answer was (--answer-tokens assumes it)"
    return ""


def at(row: Any, *paths: str) -> Any:
    """Return the value of the first path of members (``a/b``) that has one; None if none has.

    A text that should have members is read as JSON.
    """
    for path in paths:
        value = row
        for name in path.split("/"):
            value = member(of_text(value), name)
        if value is not None:
            return value
    return None


def of_text(value: Any) -> Any:
    """Return the object or list of a text that is one in JSON, else the value."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def answered(value: Any) -> Any:
    """Return an answer as logged: JSON as text, or a stream's text or chunks, as one response."""
    return joined(of_text(value))


def body_of(value: Any) -> Any:
    """Return the body of a request as logged: an object with a prompt, a list of messages, or a text."""
    read = of_text(value)
    if isinstance(read, list) and read and all(isinstance(one, dict) and "role" in one for one in read):
        return {"messages": read}
    if isinstance(read, dict):
        for inner in (read, read.get("body"), read.get("kwargs")):
            if isinstance(inner, dict) and any(inner.get(name) for name in BODY_MEMBERS):
                return inner
    return value if isinstance(read, str) and read else None


def clock_ns(number: int, value: Any, unit_ns: int) -> int | None:
    """Return a time of a clock that begins anywhere; TraceProblem if it is no such number."""
    if value is None:
        return None
    try:
        ticks = int(value) if isinstance(value, str) else value
        if not isinstance(ticks, bool) and 0 <= ticks * unit_ns < 1e19:
            return ticks * unit_ns if isinstance(ticks, int) else round(ticks * unit_ns)
    except (TypeError, ValueError):
        pass
    raise problem(number, "not a time", value, "a number from 0 on")


_WRONG = {
    **dict.fromkeys(("failure", "failed", "error", "errored", "expired"), "answered with an error"),
    **dict.fromkeys(("cancelled", "canceled", "aborted"), "cancelled"),
    **dict.fromkeys(("in_progress", "queued", "pending"), "not finished"),
}


def wrong_of(*parts: Any) -> str:
    """Return why a call is no request by the status and the error of its row and answer; "" if it is one."""
    for part in parts:
        for name in ("status", "status_code"):
            status = member(part, name)
            if isinstance(status, str) and status.lower() in _WRONG:
                return _WRONG[status.lower()]
            if str(status).isdecimal() and int(status) >= 400:
                return _WRONG["error"]
        if member(part, "error"):
            return _WRONG["error"]
    return ""
