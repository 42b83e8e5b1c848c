"""What a finished run's files must hold, told in one line where they were changed and sealed again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvcache_sim.errors import InputOutputError
from kvcache_sim.metrics.columns import Column
from kvcache_sim.metrics.run import CodedText, ColumnData


class _Members(dict[str, Any]):
    """The members of a JSON object; one that is asked for and is not there is refused by its name."""

    where = ""

    def __missing__(self, key: str) -> Any:
        raise InputOutputError(
            "not a run directory of this version", where=self.where, got=f"no {key}", hint="run it again"
        )


def read_members(data: bytes, where: Path) -> Any:
    """Return a JSON text whose objects refuse what they lack (InputOutputError).

    ValueError for a text that is no JSON, and for a number that is not finite.
    """
    kind = type("_Members", (_Members,), {"where": str(where)})
    return json.loads(data, object_hook=kind, parse_constant=_no_number)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def check_columns(columns: Mapping[str, ColumnData], schema: Mapping[str, Column], where: Path) -> None:
    """Raise InputOutputError for a column of the schema that is not there or holds another type."""
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
