"""A trace as Mooncake JSONL, the output of every transform, in files that are written atomically."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import id_lists
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.output import new_file
from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.readers.json_rows import MOONCAKE_ROWS
from kvcache_sim.workload.rows import PART_REFERENCES, parts
from kvcache_sim.workload.sessions import predecessors
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION, NOT_GIVEN, OPEN_LOOP, Trace

#: Rows, and the names of their block ids, one a reference.
Part = tuple[Trace, NDArray[Any] | list[str] | list[int]]


def write_lines(path: Path, lines: Iterable[str], force: bool) -> None:
    """Write lines to a file, gzip if its name ends in .gz (bytes depend on the lines only).

    Raises as ``new_file``; an error of the lines themselves propagates, and leaves no file.
    """
    with new_file(path, force) as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped:
                zipped.writelines(line.encode() for line in lines)
        else:
            raw.writelines(line.encode() for line in lines)


def mooncake_lines(trace: Trace) -> Iterator[str]:
    """Yield one row per request; reading them again gives the same columns.

    Closed-loop rows have ``delay`` (ms) instead of a timestamp. Ids have their original names, unknown
    members their original text. Memory: the rows of PART_REFERENCES ids. A trace whose rows wait for several
    becomes rows of Dynamo's agentic format.
    """
    if len(trace.also_after):
        yield from _agentic_lines(trace)
        return
    for part, ids in named_parts(trace):
        yield from part_lines(part, ids)


def _agentic_lines(trace: Trace) -> Iterator[str]:
    """Yield the rows with the names of those that each waits for; block ids are numbered."""
    before = predecessors(trace).tolist()
    waits = [[] if first == NO_REQUEST else [f"r{first}"] for first in before]
    for row, other in trace.also_after.tolist():
        waits[row].append(f"r{other}")
    for row, names in enumerate(waits):
        session = trace.session_id(int(trace.session[row]))
        time = (
            f'"delay": {ms(int(trace.think_ns[row]))}'
            if names
            else f'"timestamp": {ms(int(trace.arrival_ns[row]))}'
        )
        ids = trace.block_ids[trace.id_offsets[row] : trace.id_offsets[row + 1]].tolist()
        members = [
            f'"request_id": "r{row}"',
            *([] if session is None else [f'"session_id": {json.dumps(session)}']),
            f'{time}, "wait_for": {json.dumps(names)}',
            f'"input_length": {trace.input_tokens[row]}, "output_length": {trace.output_tokens[row]}',
            f'"hash_ids": {json.dumps(ids)}',
            *([other_members(trace.extra[row])] if trace.extra and trace.extra[row] else []),
        ]
        yield "{" + ", ".join(members) + "}\n"


def named_parts(trace: Trace) -> Iterator[Part]:
    """Yield the rows of a trace some at a time; raises ``UsageError`` for rows that wait for several."""
    if len(trace.also_after):
        raise UsageError(
            "requests that wait for several cannot be written",
            where=trace.source,
            expected="a trace whose rows wait for one request each",
            hint="a name in .jsonl: rows of dynamo-agentic have wait_for",
        )
    names = trace.id_names if len(trace.id_names) else None
    for part in parts(trace, PART_REFERENCES):
        ids = part.block_ids
        if isinstance(names, list):
            yield part, [names[k] for k in ids.tolist()]
        else:
            yield part, ids if names is None else names[ids]


def part_lines(trace: Trace, ids: NDArray[Any] | list[str] | list[int]) -> Iterator[str]:
    """Yield the rows of a part of a trace; ``ids`` are the names of its block ids, one a reference."""
    offsets = trace.id_offsets
    if isinstance(ids, list):
        bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        lists = [json.dumps(ids[start:stop]) for start, stop in bounds]
    else:
        lists = id_lists(ids.astype(np.uint64, copy=False), offsets)
    for row in range(len(trace)):
        think = int(trace.think_ns[row])
        members = [
            f'"timestamp": {ms(int(trace.arrival_ns[row]))}'
            if think == OPEN_LOOP
            else f'"delay": {ms(think)}',
            f'"input_length": {trace.input_tokens[row]}',
            f'"output_length": {trace.output_tokens[row]}',
        ]
        if offsets[row] < offsets[row + 1]:
            members.append(f'"hash_ids": {lists[row]}')
        turn = int(trace.turn[row])
        if trace.session[row] != NO_SESSION:
            members.append(
                f'"session_id": {json.dumps(trace.session_names[trace.session[row]])}, "turn": {turn}'
            )
        if len(trace.after) and trace.after[row] != NO_REQUEST:
            members.append(f'"after": {trace.after[row]}')
        if len(trace.history_tokens) and trace.history_tokens[row] != NOT_GIVEN:
            members.append(f'"history_length": {trace.history_tokens[row]}')
        if len(trace.priority) and trace.priority[row]:
            members.append(f'"priority": {trace.priority[row]}')
        if len(trace.named_tokens) and trace.named_tokens[row]:
            members.append(f'"named_length": {trace.named_tokens[row]}')
        if len(trace.abort_after_ns) and trace.abort_after_ns[row] != NOT_GIVEN:
            members.append(f'"abort_after": {ms(int(trace.abort_after_ns[row]))}')
        if bool(trace.is_conversational_turn[row]) != (turn > 0):
            members.append(f'"is_conversational_turn": {json.dumps(bool(trace.is_conversational_turn[row]))}')
        if trace.extra and trace.extra[row]:
            members.append(other_members(trace.extra[row]))
        yield "{" + ", ".join(members) + "}\n"


#: Members of a written row; another format may have one of such a name with another meaning.
_OWN = {name for name in MOONCAKE_ROWS.values() if isinstance(name, str) and name}
_MAY_BE_OWN = re.compile("|".join(f'"{name}"' for name in sorted(_OWN)))


def other_members(text: str) -> str:
    """Return members without a column, as JSON without braces; one named as a written one gets ``source_``.

    Bailian's ``turn`` is one: it counts from chats that may be before the trace.
    """
    if not _MAY_BE_OWN.search(text):
        return text
    members = json.loads(f"{{{text}}}")
    return json.dumps({f"source_{name}" if name in _OWN else name: value for name, value in members.items()})[
        1:-1
    ]


def ms(ns: int) -> str:
    """Return nanoseconds as exact decimal milliseconds."""
    whole, rest = divmod(ns, NS_PER_MS)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)
