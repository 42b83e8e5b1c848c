"""Logs of coding agents with counts and times alone: TraceLab's rows, Azure's GitHub Copilot sessions.

Neither has ids: prompt n begins with as much of prompt n − 1 (and its answer) as was served from the cache.
Sources: uw-syfi/TraceLab @ 0b8a262b, ``round_trace``; AzurePublicDataset, ``schema.json`` of
GitHubCopilotCodingAgentDataset2026.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.documents import each_document
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.source import list_of, problem
from kvcache_sim.workload.imports.turns import EMPTY, Details, Turn, prompt_count
from kvcache_sim.workload.prompts.body import count, member
from kvcache_sim.workload.readers.dates import time_ns

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_SAID = "each prompt begins with as much of its session's last as was served from the cache, the rest is new"
_COUNTS = ("input_tokens_total", "prefix_tokens", "newly_append_tokens")
_INPUTS = ("user_message", "tool_result")
_GOOD = ("success", "succeeded", "completed", "ok", "200")


def _read_rounds(source: TraceSource, reading: Reading) -> Requests:
    def take(number: int, row: Any) -> tuple[int, Turn] | None:
        total, prefix, appended = (prompt_count(number, row, name) for name in _COUNTS)
        if total is None or prefix is None or member(row, "session_id") is None:
            expected = "session_id, input_tokens_total and prefix_tokens"
            raise problem(number, "no row of TraceLab's round_trace", row, expected)
        if appended is not None and prefix + appended != total:
            raise problem(number, "the counts do not add up", f"{prefix} + {appended}", f"{total} tokens")
        if total == 0:
            reading.notes.leave_out(number, EMPTY)
            return None
        outputs = count(row, "output_tokens") or 0
        session, model = str(row["session_id"]), str(row.get("model"))
        asked = _asked_ns(number, row)
        turn = Turn(asked, session, model, total, prefix, outputs, kept_tokens=prefix)
        turn.details = _details(number, row, asked)
        return count(row, "round_index") or 0, turn

    rows = sorted(each_document(source, reading, take), key=lambda row: row[1][0])
    reading.notes.remark(_SAID)
    yield from ((number, turn) for number, (_, turn) in rows)


def _details(number: int, row: Any, asked_ns: int) -> Details:
    """Return what a row has beyond its lengths; a Claude writes for 5 minutes, which is assumed."""
    times = [time_ns(member(each, "timestamp")) for each in list_of(member(row, "timing_events"))]
    first_ns = min((at for at in times if at is not None and at > asked_ns), default=asked_ns)
    is_claude = row.get("provider") == "claude"
    written = count(row, "claude_cache_creation_input_tokens") or 0
    details = Details(f"{row['session_id']}:{number}", first_ns, {"5m": written if is_claude else 0})
    details.provider = "anthropic" if is_claude else "openai"
    return details


def _asked_ns(number: int, row: Any) -> int:
    """Return the time of a round's last input, when it could be sent; without inputs, of its first event."""
    listed = row.get("timing_events")
    events = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    inputs = [each for each in events if each.get("event_type") in _INPUTS]
    times = [at for each in inputs or events[:1] if (at := time_ns(each.get("timestamp"))) is not None]
    if not times:
        raise problem(number, "no time", listed, "timing_events with a timestamp")
    return max(times)


def _read_sessions(source: TraceSource, reading: Reading) -> Requests:
    def take(number: int, row: Any) -> list[Turn]:
        turns = member(row, "turns")
        listed = [member(turn, "llm_calls") or [] for turn in turns] if isinstance(turns, list) else [None]
        if not all(isinstance(calls, list) for calls in listed):
            raise problem(number, "no Copilot session", row, "session_id and turns with lists of llm_calls")
        session = str(member(row, "session_id") or number)
        found = [_call(number, call, session, reading) for calls in listed for call in calls or ()]
        return sorted((turn for turn in found if turn is not None), key=lambda turn: turn.at_ns)

    reading.notes.remark(_SAID)
    for number, turns in each_document(source, reading, take):
        yield from ((number, turn) for turn in turns)


def _call(number: int, call: Any, session: str, reading: Reading) -> Turn | None:
    ends = [str(end) for name in ("result", "status_code") if (end := member(call, name)) is not None]
    bad = [end for end in ends if end.lower() not in _GOOD]
    counts, at = member(call, "tokens"), time_ns(member(call, "timestamp"))
    prompt, cached = prompt_count(number, counts, "prompt"), prompt_count(number, counts, "cached")
    if at is None and not bad:
        raise problem(number, "no time of a call", member(call, "timestamp"), "timestamp")
    if at is None or bad or not prompt:
        reading.notes.leave_out(number, f"calls that ended as {bad[0][:20]!r}" if bad else EMPTY)
        return None
    outputs = count(counts, "completion") or 0
    turn = Turn(at, session, str(member(call, "model")), prompt, cached, outputs, kept_tokens=cached)
    turn.details = Details(str(member(call, "message_id") or f"{session}:{at}"), at, provider="")
    return turn


def _with(*names: bytes) -> Callable[[bytes], bool]:
    return lambda head: all(b'"%b"' % name in head for name in names)


KINDS = (
    LogKind("tracelab", "TraceLab's round_trace", _with(b"round_index", b"prefix_tokens"), _read_rounds),
    LogKind("copilot", "Azure's GitHub Copilot sessions", _with(b"turns", b"llm_calls"), _read_sessions),
)
