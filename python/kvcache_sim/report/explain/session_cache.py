"""The cached state of one session, turn by turn: seed 000's ``active_sessions_kv_state``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.metrics.columns import OUTCOMES, STATUSES, miss_column
from kvcache_sim.replay.miss_causes import reported_by
from kvcache_sim.report.finished import FinishedRun, find_trace, text_column
from kvcache_sim.spec.lookups import SessionCacheInfo
from kvcache_sim.workload.tokens.row_key import id_name

_UNEXPECTED = "CONVERSATIONAL_MISS_UNEXPECTED_PROMPT"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a session: its hits and misses by cause, and the tokens it left in the cache."""

    request: int
    turn: int
    machine: int
    rejected: bool
    arrival_ns: int
    prompt_tokens: int
    cached_prefix_length: int
    #: The same by the tier it came from.
    cached_tokens: Mapping[str, int]
    #: The events of its look-up, in their order.
    events: tuple[str, ...]
    #: Missed tokens by cause; None where the run did not count them.
    misses: Mapping[str, int] | None
    #: None where it was rejected, or the run caches nothing.
    left: SessionCacheInfo | None


def session_turns(run: FinishedRun, name: str) -> list[Turn]:
    """Return the turns of a session, by its name or its number, in the order in which they finished.

    The block ids that a turn left are the trace's own; there are none where the trace is not available.
    Raises ``UsageError`` for a session the run does not have.
    """
    find_trace(run)
    rows = run.requests
    number = _number(run, name)
    picked = np.flatnonzero(rows["session"] == number)
    ended = np.where(rows["finish_ns"] >= 0, rows["finish_ns"], rows["arrival_ns"])[picked]
    unexpected = _unexpected(run)
    return [
        _turn(run, int(request), name, unexpected) for request in picked[np.argsort(ended, kind="stable")]
    ]


def _number(run: FinishedRun, name: str) -> int:
    numbers = sorted(set(run.requests["session"].tolist()) - {-1})
    names = {str(number): number for number in numbers}
    if run.trace is not None:
        names = {str(run.trace.session_id(number)): number for number in numbers}
    if name not in names:
        close = close_matches(name, names, 1, 0.5)
        raise UsageError(
            "no such session",
            where="--session",
            got=repr(name),
            expected=f"one of {len(names):,}, such as {next(iter(names))}"
            if names
            else "a run with sessions",
            hint=f"did you mean {close[0]!r}?" if close else "",
        )
    return int(names[name])


def _unexpected(run: FinishedRun) -> set[int]:
    """Return the requests whose prompt does not continue their session's previous turn."""
    events = run.events
    details = text_column(events["detail"])
    if _UNEXPECTED not in details.words:
        return set()
    found = np.flatnonzero(details.codes == details.words.index(_UNEXPECTED))
    return set(np.asarray(events["request"])[found].tolist())


def _turn(run: FinishedRun, request: int, session: str, unexpected: set[int]) -> Turn:
    row = {column: int(values[request]) for column, values in run.requests.items()}
    rejected = row["status"] in map(STATUSES.index, ("rejected", "turned_away"))
    cached = row["cached_prefix_length_used"]
    events = [_UNEXPECTED] * (request in unexpected) + [OUTCOMES[row["outcome"]]]
    if cached == row["input_tokens"]:
        events.append("FULL_HIT_NO_PREFILL_NEEDED")
    columns = {cause.name: miss_column(cause) for cause in reported_by("timed")}
    counted = all(column in row for column in columns.values())
    misses = {cause: row[column] for cause, column in columns.items()} if counted else None
    return Turn(
        request=request,
        turn=row["turn"],
        machine=row["machine"],
        rejected=rejected,
        arrival_ns=row["arrival_ns"],
        prompt_tokens=row["input_tokens"],
        cached_prefix_length=cached,
        cached_tokens={tier: row[f"cached_{tier}_tokens"] for tier in KV_SOURCES},
        events=() if rejected else tuple(events),
        misses={cause: tokens for cause, tokens in misses.items() if tokens} if misses is not None else None,
        left=None if rejected else _left(run, row, session),
    )


def _left(run: FinishedRun, row: Mapping[str, int], session: str) -> SessionCacheInfo | None:
    cache: Mapping[str, Any] = run.scenario.get("cache", {})
    if not cache.get("enabled", True):
        return None
    # An answer that another machine generated is not kept where the prompt was computed.
    answered = cache.get("cache_output", True) and row["decode_machine"] < 0
    ids: list[Any] = []
    if run.trace is not None:
        start, end = run.trace.id_offsets[row["request"] : row["request"] + 2]
        ids = [id_name(run.trace, int(dense)) for dense in run.trace.block_ids[start:end]]
    return SessionCacheInfo(
        session_id=session,
        prompt_part_length=row["input_tokens"],
        response_part_length=row["output_tokens"] if answered else 0,
        associated_sequence_id=str(row["request"]),
        kv_block_ids=ids,
        last_update_ns=row["finish_ns"],
    )


def session_json(name: str, turns: list[Turn]) -> dict[str, Any]:
    """Return a session's turns for programs, under the seed's names."""
    return {
        "session": name,
        "turns": [
            {
                "request": turn.request,
                "turn": turn.turn,
                "machine": turn.machine,
                "status": "rejected" if turn.rejected else "finished",
                "arrival_ns": turn.arrival_ns,
                "prompt_tokens": turn.prompt_tokens,
                "cached_prefix_length": turn.cached_prefix_length,
                "cached_tokens": dict(turn.cached_tokens),
                "events": list(turn.events),
                "missed_tokens": 0 if turn.rejected else turn.prompt_tokens - turn.cached_prefix_length,
                "misses": turn.misses,
                "left": _info_json(turn.left),
            }
            for turn in turns
        ],
    }


def _info_json(info: SessionCacheInfo | None) -> dict[str, Any] | None:
    if info is None:
        return None
    return {
        "session_id": info.session_id,
        "total_tokens_in_cache": info.total_tokens_in_cache,
        "prompt_part_length": info.prompt_part_length,
        "response_part_length": info.response_part_length,
        "associated_sequence_id": info.associated_sequence_id,
        "kv_block_ids": list(info.kv_block_ids),
        "last_update_time": info.last_update_time,
    }


def session_text(name: str, turns: list[Turn]) -> str:
    """Return a session's turns for a terminal of 80 columns."""
    shown = name if len(name) <= 40 else name[:39] + "…"
    lines = [
        f"Session {shown}: {len(turns):,} turn{'s' * (len(turns) != 1)}",
        f"{'turn':>4} {'request':>8} {'arrives':>12} {'prompt':>9} {'hit':>9} {'missed':>9} {'left':>9}"
        "  machine",
    ]
    for turn in turns:
        missed = turn.prompt_tokens - turn.cached_prefix_length
        left = "–" if turn.left is None else f"{turn.left.total_tokens_in_cache:,}"
        lines.append(
            f"{turn.turn:>4} {turn.request:>8} {turn.arrival_ns / 1e9:>10,.3f} s {turn.prompt_tokens:>9,} "
            f"{turn.cached_prefix_length:>9,} {missed:>9,} {left:>9}  {turn.machine}"
        )
        lines += [f"     {text}" for text in _details(turn)]
    lines.append("hit: tokens of the cached prefix; left: prompt and answer, cached by the turn")
    if turns and turns[0].misses is None:
        lines.append("causes of misses: run 'kvsim simulate' with --causes")
    return "\n".join(lines)


def _details(turn: Turn) -> list[str]:
    if turn.rejected:
        return ["rejected"]
    lines = list(turn.events)
    hits = [f"{tokens:,} from {tier}" for tier, tokens in turn.cached_tokens.items() if tokens]
    if hits:
        lines[-1] += ": " + ", ".join(hits) if len(turn.events) == 1 else ""
    missed = [f"{tokens:,} {cause}" for cause, tokens in (turn.misses or {}).items()]
    return lines + (["missed: " + ", ".join(missed)] if missed else [])
