"""A generated workload as Mooncake JSONL, written in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import IO

import numpy as np

from kvcache_sim.workload.generate.requests import Requests, make_requests
from kvcache_sim.workload.generate.settings import Workload
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, OPEN_LOOP


def write_jsonl(settings: Workload, seed: int, out: IO[str]) -> int:
    """Write the workload's rows in order of arrival and return their number; a target must be resolved.

    A row has ``timestamp`` (ms), ``input_length``, ``output_length`` and ``hash_ids`` (of ``block_size``
    tokens, the last possibly partial). Rows of sessions add ``session_id`` and ``turn``, from turn 1 on
    ``history_length``. In closed loop ``delay`` (ms) replaces the timestamp: the time between the previous
    turn, or row ``after`` (from 0) if given, and the request. With ``prompt_structure: new_input_only`` rows
    have that member, ``input_length`` is the new input, and there are no ids. Memory: the overlapping
    requests, not their total.
    """
    new_input_only = getattr(settings, "prompt_structure", "") == "new_input_only"
    written = 0
    for rows in _in_order(settings, seed):
        out.writelines(_lines(rows, new_input_only))
        written += len(rows)
    return written


def _in_order(settings: Workload, seed: int) -> Iterator[Requests]:
    """Yield the requests in order of arrival, ``after`` as row numbers of the file."""
    waiting: Requests | None = None
    row_of: dict[int, int] = {}  # file rows of written requests that others still wait for
    rows = 0
    for made, future in make_requests(settings, seed):
        together = made if waiting is None else Requests.joined([waiting, made])
        together = together.take(np.argsort(together.arrival_ns, kind="stable"))
        ready = int(np.searchsorted(together.arrival_ns, future.horizon_ns, side="right"))
        waiting = together.take(np.arange(ready, len(together)))
        yield _numbered(together.take(np.arange(ready)), row_of, rows)
        rows += ready
        kept = {*future.waited_for, *waiting.after.tolist()}
        row_of = {number: row for number, row in row_of.items() if number in kept}
    if waiting is not None:
        yield _numbered(waiting, row_of, rows)


def _numbered(ready: Requests, row_of: dict[int, int], first_row: int) -> Requests:
    """Return the requests with ``after`` as file rows, after adding their own rows to ``row_of``."""
    row_of.update(zip(ready.number.tolist(), range(first_row, first_row + len(ready)), strict=True))
    after = [NO_REQUEST if number == NO_REQUEST else row_of[number] for number in ready.after.tolist()]
    return replace(ready, after=np.asarray(after, np.int64))


def _ms(ns: int) -> str:
    whole, rest = divmod(ns, 10**6)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


def _lines(rows: Requests, new_input_only: bool) -> Iterator[str]:
    ids = rows.block_ids.tolist()
    start = 0
    columns = (
        rows.arrival_ns, rows.think_ns, rows.after, rows.session, rows.turn, rows.input_tokens,
        rows.output_tokens, rows.history_tokens, rows.id_counts,
    )  # fmt: skip
    for arrival, think, after, session, turn, prompt, output, history, count in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        when = f'"timestamp": {_ms(arrival)}' if think == OPEN_LOOP else f'"delay": {_ms(think)}'
        follows = f', "after": {after}' if after != NO_REQUEST else ""
        if new_input_only:
            text = f'"prompt_structure": "new_input_only", "input_length": {prompt - history}'
            blocks = ""
        else:
            text = f'"input_length": {prompt}'
            blocks = f', "hash_ids": {ids[start : start + count]}'
        start += count
        session_text = f', "session_id": "s{session}", "turn": {turn}' if session != NO_SESSION else ""
        if turn and not new_input_only:
            session_text += f', "history_length": {history}'
        yield f'{{{when}{follows}, {text}, "output_length": {output}{session_text}{blocks}}}\n'
