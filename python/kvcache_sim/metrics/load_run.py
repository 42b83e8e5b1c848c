"""Reading of a finished run directory, with a check that it is complete and its summary has its form.

A file that was changed and sealed again is refused in one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.base.regular_files import open_regular
from kvcache_sim.metrics.columns import EVENT_COLUMNS, REQUEST_COLUMNS, SERIES_COLUMNS, Column
from kvcache_sim.metrics.figures import FIGURES
from kvcache_sim.metrics.names import STABLE_METRICS
from kvcache_sim.metrics.run import CodedText, ColumnData
from kvcache_sim.metrics.run_directory import COMPLETE, sha256_of
from kvcache_sim.metrics.tables import read_table

#: A line of the completeness marker, as ``sha256sum`` writes it: a file of the directory itself.
_LISTED = re.compile(r"([0-9a-f]{64})  ([\w-][\w.-]*)")
_MOST_MARKER_BYTES = 100_000


class _Members(dict[str, Any]):
    """The members of a JSON object; access to a missing member is an error with its name."""

    where = ""

    def __missing__(self, key: str) -> Any:
        raise InputOutputError(
            "not a run directory of this version", where=self.where, got=f"no {key}", hint="run it again"
        )


def read_members(data: bytes, where: Path) -> Any:
    """Return a parsed JSON text; access to a missing member raises InputOutputError.

    ValueError for a text that is no JSON, and for a number that is not finite.
    """
    kind = type("_Members", (_Members,), {"where": str(where)})
    try:
        return json.loads(data, object_hook=kind, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError(str(error)) from None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def check_columns(columns: Mapping[str, ColumnData], schema: Mapping[str, Column], where: Path) -> None:
    """Raise InputOutputError for a column of the schema that is missing or has another type."""
    for name, column in schema.items():
        if name not in columns:
            raise InputOutputError("lacks a column", where=str(where), got=f"no {name}", hint="run it again")
        values = columns[name]
        found = "str" if isinstance(values, CodedText) else str(values.dtype)
        if found == column.dtype or (found != "str" and _same_kind(found, column.dtype)):
            continue
        raise InputOutputError(
            f"column {name} has another type",
            where=str(where),
            got=found,
            expected=column.dtype,
            hint="run it again",
        )


def _same_kind(found: str, expected: str) -> bool:
    return expected != "str" and np.dtype(found).kind == np.dtype(expected).kind


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run directory: its manifest and summary in memory, its tables read on access."""

    path: Path
    #: ``run.json``: versions, argv, seed, trace, digests, warnings.
    manifest: dict[str, Any]
    summary: dict[str, Any]
    #: ``scenario.yaml`` as text.
    scenario: str

    def requests(self) -> dict[str, ColumnData]:
        """Return the columns of ``REQUEST_COLUMNS``."""
        return self._table("requests", REQUEST_COLUMNS)

    def series(self) -> dict[str, ColumnData]:
        """Return the columns of ``SERIES_COLUMNS``."""
        return self._table("series", SERIES_COLUMNS)

    def events(self) -> dict[str, ColumnData]:
        """Return the columns of ``EVENT_COLUMNS``."""
        return self._table("events", EVENT_COLUMNS)

    def prefixes(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``PREFIX_COLUMNS``; None if the run did not keep them."""
        if not (self.path / "prefixes.parquet").exists():
            return None
        from kvcache_sim.metrics.prefix_entries import PREFIX_COLUMNS

        return self._table("prefixes", PREFIX_COLUMNS)

    def junctions(self) -> dict[str, ColumnData] | None:
        """Return the columns of ``JUNCTION_COLUMNS``; None for a cache of one group."""
        if not (self.path / "junctions.parquet").exists():
            return None
        from kvcache_sim.metrics.cache_groups import JUNCTION_COLUMNS

        return self._table("junctions", JUNCTION_COLUMNS)

    def _table(self, name: str, schema: Mapping[str, Column]) -> dict[str, ColumnData]:
        path = self.path / f"{name}.parquet"
        try:
            columns = read_table(path)
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            reason = " ".join(str(error).split())[:120]
            raise InputOutputError("cannot be read", where=str(path), got=reason) from None
        check_columns(columns, schema, path)
        return columns


def load_run(path: Path) -> StoredRun:
    """Return a finished run.

    Raises UsageError if there is no finished run, InputOutputError if a file differs from its hash in the
    completeness marker.
    """
    try:
        with open_regular(path / COMPLETE) as file:
            marker = file.read(_MOST_MARKER_BYTES).decode("ascii")
    except (OSError, ValueError):
        hint = "give the directory that 'kvsim simulate' printed"
        raise UsageError("not a finished run", where=str(path), hint=hint) from None
    contents: dict[str, bytes] = {}
    for line in marker.splitlines() or [""]:
        listed = _LISTED.fullmatch(line)
        if listed is None:
            raise InputOutputError(
                "not a list of files",
                where=str(path / COMPLETE),
                got=repr(line)[:60] if line else "nothing",
                expected="the SHA-256 and name of each file",
            )
        name = listed[2]
        try:
            if sha256_of(path / name) != listed[1]:
                raise InputOutputError("is not what was written", where=str(path / name), hint="run it again")
            if not name.endswith(".parquet"):
                contents[name] = (path / name).read_bytes()
        except OSError as error:
            raise InputOutputError("cannot be read", str(path / name), got=str(error.strerror)) from None
    try:
        manifest, summary = (
            read_members(contents[name], path / name) for name in ("run.json", "summary.json")
        )
        kinds = {"argv": list, "trace": dict, "digest": dict, "options": dict, "warnings": list}
        if not (isinstance(manifest, dict) and isinstance(summary, dict)) or any(
            not isinstance(manifest.get(name, kind()), kind) for name, kind in kinds.items()
        ):
            raise ValueError("of other types")
        for misfit in misfits(summary):
            where = str(path / "summary.json")
            raise InputOutputError("a member of another form", where, got=misfit[:80], hint="run it again")
        return StoredRun(path, manifest, summary, contents["scenario.yaml"].decode())
    except (KeyError, ValueError):
        raise InputOutputError("not a run directory of this version", where=str(path)) from None


#: Figures without a unit that readers take for a list or a text.
_OTHERS: dict[str, type] = {
    "machines.requests": list,
    "machines.prefilled_tokens": list,
    "handover.machines": list,
    "prefix_cache.ttft_hit_vs_miss.sentence": str,
    "saturation.sentence": str,
    "step_times.source": str,
    "step_times.error_from": str,
    "engine.name": str,
    "digest.events": str,
    "digest.results": str,
}
_NUMBER = (int, float)


@dataclass(slots=True)
class _Part:
    """A part of a dotted name: a figure, a group of figures, or both; a family's members are ``*``."""

    forms: type | tuple[type, ...] | None = None
    members: dict[str, _Part] = field(default_factory=dict)


@cache
def _root() -> _Part:
    root = _Part()
    for figure in FIGURES:
        part = root
        for word in figure.name.split("."):
            part = part.members.setdefault("*" if word.startswith("<") else word, _Part())
        is_number = figure.unit or figure.name in STABLE_METRICS
        part.forms = _NUMBER if is_number else _OTHERS.get(figure.name, (int, float, str, list))
    return root


def misfits(summary: Any) -> Iterator[str]:
    """Yield ``name: value`` of each member that its figure's form does not fit; null fits each."""
    yield from _misfits(summary, _root(), "")


def _misfits(value: Any, part: _Part, name: str) -> Iterator[str]:
    inner = part.members
    if isinstance(value, dict) and inner:
        for key, member in value.items():
            if known := inner.get(key) or inner.get("*"):
                yield from _misfits(member, known, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list) and (row := inner.get("row") or inner.get("*")):
        for at, member in enumerate(value):
            yield from _misfits(member if isinstance(member, dict) else "no row", row, f"{name}.{at}")
    elif isinstance(value, list) and part.forms == _NUMBER:
        if any(type(member) not in _NUMBER for member in value):
            yield f"{name}: {value!r}"
    elif value is not None and not (part.forms and isinstance(value, part.forms)):
        yield f"{name}: {value!r}"
