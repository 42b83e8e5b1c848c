"""Requests in Python: read from files, generated, or made from arrays and data frames."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kvcache_sim.api.calls import public
from kvcache_sim.api.settings import lay_over
from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.scenario.yaml_tree import Tree
from kvcache_sim.workload import readers
from kvcache_sim.workload.generate import build
from kvcache_sim.workload.readers.settings import OnBadRow, ReadSettings, TimeOrder, Turns
from kvcache_sim.workload.toolbox.write import ms
from kvcache_sim.workload.trace import Trace


@public
def read_trace(
    path: str | os.PathLike[str],
    *,
    block_size: int | None = None,
    format: str | None = None,
    on_bad_row: OnBadRow = "error",
    time_order: TimeOrder = "error",
    bytes_per_token: int | None = None,
    turns: Turns | None = None,
) -> Trace:
    """Read the requests of a trace file of any format that kvsim supports.

    Args:
        path: Plain file, ``.gz`` or ``.zst``.
        block_size: Tokens of a block id, where the format does not state it.
        format: Name of the format. None: detected from the content.
        on_bad_row: ``error``, or ``skip`` for rows that cannot be read.
        time_order: ``error`` for arrivals out of order, or another treatment.
        bytes_per_token: Bytes a token where lengths are in bytes (None: 4, an estimate).
        turns: ``delta`` if a session's later rows hold their new turn alone, ``whole`` if prompts are whole.
            None: detected from their ids.

    Returns:
        The requests in file order.

    Raises:
        UsageError: The file is missing, or a setting is wrong.
        TraceError: The file has data that cannot be trusted.
    """
    return readers.read_trace(
        path,
        settings=ReadSettings(
            block_size, on_bad_row, format, time_order, bytes_per_token=bytes_per_token, turns=turns
        ),
    )


@public
def generate(kind: str, seed: int = 0, **settings: Any) -> Trace:
    """Generate the requests of a workload; equal arguments give equal requests on any machine.

    Args:
        kind: ``conversational``, ``repetitive``, ``diverse``, ``few-shot``, ``overflow``, ``agentic`` or
            ``rag``.
        seed: Seed of all draws, an integer from 0 on.
        settings: Keys of this kind (``kvsim help workload``), such as ``requests=500``; times with their
            units.

    Returns:
        The requests in order of arrival.

    Raises:
        UsageError: A key is wrong; ``where`` is ``workload.KEY``.
    """
    tree = Tree()
    lay_over(tree, settings)
    return build(kind, tree.values, seed)


class _Field(NamedTuple):
    """A column of requests: its member in a JSON line, and the nanoseconds of a unit of its times."""

    member: str
    unit_ns: int = 0


#: Name of a column → its field.
_FIELDS: dict[str, _Field] = {
    **{f"arrival_{unit}": _Field("timestamp", ns) for unit, ns in (("s", 10**9), ("ms", 10**6), ("ns", 1))},
    "timestamp": _Field("timestamp", 10**6),
    **{f"think_{unit}": _Field("delay", ns) for unit, ns in (("s", 10**9), ("ms", 10**6), ("ns", 1))},
    "delay": _Field("delay", 10**6),
    **{name: _Field("input_length") for name in ("input_tokens", "input_length")},
    **{name: _Field("output_length") for name in ("output_tokens", "output_length")},
    **{name: _Field("hash_ids") for name in ("block_ids", "hash_ids")},
    **{name: _Field("session_id") for name in ("session", "session_id")},
    "turn": _Field("turn"),
    "after": _Field("after"),
    "history_length": _Field("history_length"),
}


@public
def make_trace(data: Any, *, block_size: int = 512) -> Trace:
    """Make requests from columns. Cost: that of writing the rows as a file and reading it.

    Columns: a time (``arrival_s``, ``arrival_ms``, ``arrival_ns``; in closed loop ``think_s``, …, after the
    previous turn), ``input_tokens``, ``output_tokens``; optionally ``block_ids`` (a list a row, chained),
    ``session``, ``turn``. Mooncake's names are accepted too. None and NaN leave a member out of its row.

    Args:
        data: A mapping of arrays, a pandas or polars frame, or an Arrow table, a row a request.
        block_size: Tokens of a block id.

    Returns:
        The requests in order of the rows.

    Raises:
        UsageError: A column is unknown, or columns have unequal lengths.
        TraceError: A row is wrong; ``where`` names it.
    """
    with tempfile.NamedTemporaryFile("w", prefix="kvsim-rows-", suffix=".jsonl") as file:
        file.writelines(_lines(_columns(data)))
        file.flush()
        settings = ReadSettings(block_size=block_size, format="mooncake", turns="whole")
        try:
            trace = readers.read_trace(file.name, settings=settings)
        except KvsimError as error:
            error.where = _row(error.where, file.name)
            raise
        warnings = tuple(text.replace(file.name, "rows") for text in trace.warnings)
        return replace(trace, source="rows", warnings=warnings)


def _row(where: str, name: str) -> str:
    """Return a position in the file of rows as its row, from 0."""
    line = where.removeprefix(name).lstrip(":").partition(":")[0]
    return f"row {int(line) - 1}" if line.isdecimal() else "rows"


def _columns(data: Any) -> dict[str, list[Any]]:
    """Return the columns of any table by their names."""
    names = data.column_names if hasattr(data, "column_names") else getattr(data, "columns", data)
    try:
        columns = {str(name): _listed(data[name]) for name in names}
    except (TypeError, KeyError, IndexError, AttributeError):
        expected = "a mapping of columns, a data frame or an Arrow table"
        raise UsageError("not requests in columns", got=type(data).__name__, expected=expected) from None
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError("columns of unequal length", where="rows", got=str(lengths))
    taken: dict[str, str] = {}
    for name in columns:
        if name not in _FIELDS:
            near = close_matches(name, _FIELDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"columns: {', '.join(_FIELDS)}"
            raise UsageError(f"unknown column {name!r}", where="rows", hint=hint)
        other = taken.setdefault(_FIELDS[name].member, name)
        if other != name:
            raise UsageError("two columns say the same", where="rows", got=f"{other} and {name}")
    return columns


def _listed(column: Any) -> list[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(column, method):
            found: list[Any] = getattr(column, method)()
            return found
    return list(column)


def _lines(columns: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    fields = [_FIELDS[name] for name in columns]
    for row in zip(*columns.values(), strict=True):
        members = [
            f'"{field.member}": {_text(value, field)}'
            for field, value in zip(fields, row, strict=True)
            if not (value is None or (isinstance(value, float) and value != value))
        ]
        yield "{" + ", ".join(members) + "}\n"


def _text(value: Any, field: _Field) -> str:
    if field.unit_ns:
        return ms(value * field.unit_ns if isinstance(value, int) else round(float(value) * field.unit_ns))
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and value.is_integer():  # a column with gaps is of floats
        value = int(value)
    if field.member == "session_id":
        value = str(value)
    return json.dumps(list(value) if isinstance(value, tuple) else value)
