"""TraceLab's ``round_trace``: one call of a coding agent a row, with counts and times, without ids.

Prompt n begins with the first ``prefix_tokens`` of prompt n − 1. Source: uw-syfi/TraceLab @ 0b8a262b.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.records import each_record
from kvcache_sim.workload.imports.source import count_of, member, problem, time_ns
from kvcache_sim.workload.imports.turns import BY_COUNTS, EMPTY, Piece, Turn, prompt_count

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_INPUTS = {"user_message": "user", "tool_result": "tool_result"}


def _detect(head: bytes) -> bool:
    return all(sign in head for sign in (b'"round_index"', b'"input_tokens_total"', b'"prefix_tokens"'))


def _read(source: TraceSource, reading: Reading) -> Requests:
    def take(number: int, row: Any) -> tuple[int, Turn] | None:
        total, prefix, appended = (
            prompt_count(number, row, name)
            for name in ("input_tokens_total", "prefix_tokens", "newly_append_tokens")
        )
        if total is None or prefix is None:
            raise problem(number, "no row of TraceLab", row, "input_tokens_total and prefix_tokens")
        if appended is not None and prefix + appended != total:
            raise problem(number, "the counts do not add up", f"{prefix} + {appended}", f"{total} tokens")
        if total == 0:
            reading.notes.leave_out(number, EMPTY)
            return None
        return count_of(number, row, "round_index") or 0, _turn(number, row, total, prefix)

    rows = list(each_record(source, reading, take))
    rows.sort(key=lambda row: row[1][0])
    reading.notes.remark(BY_COUNTS)
    yield from ((number, turn) for number, (_, turn) in rows)


def _turn(number: int, row: dict[str, Any], total: int, prefix: int) -> Turn:
    events = row.get("timing_events")
    events = [each for each in events if isinstance(each, dict)] if isinstance(events, list) else []
    inputs = [each for each in events if each.get("event_type") in _INPUTS]
    times = [at for each in inputs or events if (at := time_ns(each.get("timestamp"))) is not None]
    if not times:
        raise problem(number, "no time", row.get("timing_events"), "timing_events with a timestamp")
    return Turn(
        max(times) if inputs else min(times),
        str(member(row, "session_id") or ""),
        str(row.get("model")),
        total,
        prefix,
        count_of(number, row, "output_tokens") or 0,
        kept_tokens=prefix,
        added=tuple(Piece(_INPUTS[each["event_type"]], _chars(each)) for each in inputs),
    )


def _chars(event: dict[str, Any]) -> int:
    found = member(event, "content_chars", "result_chars")
    return max(0, found) if isinstance(found, int) else 0


KIND = LogKind(
    "tracelab", "TraceLab's round_trace: a call of an agent a row, with its counts", _detect, _read
)
