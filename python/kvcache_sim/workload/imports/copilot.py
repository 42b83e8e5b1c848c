"""Azure's GitHub Copilot sessions: a session a line, its calls inside turns, with counts and no ids.

Prompt n begins with the first ``cached`` tokens of prompt n − 1 and its answer. Source: AzurePublicDataset,
GitHubCopilotCodingAgentDataset2026, ``schema.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.records import each_record
from kvcache_sim.workload.imports.source import count_of, member, problem, time_ns
from kvcache_sim.workload.imports.turns import BY_COUNTS, EMPTY, Turn, prompt_count

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_GOOD = ("success", "ok", "200")


def _detect(head: bytes) -> bool:
    return all(sign in head for sign in (b'"session_id"', b'"turns"', b'"llm_calls"'))


def _read(source: TraceSource, reading: Reading) -> Requests:
    def take(number: int, row: Any) -> list[Turn]:
        if not isinstance(member(row, "turns"), list):
            raise problem(number, "no Copilot session", row, "session_id and turns of llm_calls")
        session = str(member(row, "session_id") or number)
        calls = [call for turn in row["turns"] for call in _listed(number, turn)]
        return [turn for call in calls if (turn := _turn(number, call, session, reading)) is not None]

    reading.notes.remark(BY_COUNTS)
    for number, turns in each_record(source, reading, take):
        yield from ((number, turn) for turn in sorted(turns, key=lambda turn: turn.at_ns))


def _listed(number: int, turn: Any) -> Iterator[Any]:
    calls = member(turn, "llm_calls")
    if calls is not None and not isinstance(calls, list):
        raise problem(number, "llm_calls is no list", calls, "a list of calls")
    return iter(calls or ())


def _turn(number: int, call: Any, session: str, reading: Reading) -> Turn | None:
    if any(str(member(call, name) or "ok").lower() not in _GOOD for name in ("result", "status_code")):
        reading.notes.leave_out(number, "calls that failed or were cancelled")
        return None
    counts, at = member(call, "tokens"), time_ns(member(call, "timestamp"))
    prompt, cached = prompt_count(number, counts, "prompt"), prompt_count(number, counts, "cached")
    if at is None:
        raise problem(number, "no time of a call", member(call, "timestamp"), "timestamp")
    if not prompt:
        reading.notes.leave_out(number, EMPTY)
        return None
    outputs = count_of(number, counts, "completion") or 0
    model = str(member(call, "model"))
    return Turn(at, session, model, prompt, cached, outputs, kept_tokens=cached)


KIND = LogKind("copilot", "Azure's GitHub Copilot sessions: a session a line, with counts", _detect, _read)
