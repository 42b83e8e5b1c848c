"""Writes the curve to files, by their suffix."""

from __future__ import annotations

import json
from pathlib import Path

from kvcache_sim.errors import UsageError
from kvcache_sim.output import refuse_existing, write_new
from kvcache_sim.report.curve.build import Document
from kvcache_sim.report.curve.picture import curve_picture
from kvcache_sim.report.curve.text import curve_csv, curve_table
from kvcache_sim.report.picture_file import SUFFIXES

_TEXTS = (".json", ".csv")


def check_outputs(paths: list[Path], force: bool) -> None:
    """Refuse, before anything is computed, files that could not be written (``UsageError``)."""
    if force and not paths:
        raise UsageError("has no effect without --out", where="--force")
    for path in paths:
        if path.suffix.lower() not in (*_TEXTS, *SUFFIXES):
            expected = ", ".join((*_TEXTS, *SUFFIXES))
            raise UsageError("unknown kind of file", where="--out", got=str(path), expected=expected)
        refuse_existing(path, force)
        if not path.parent.is_dir():
            raise UsageError("no such folder", where="--out", got=str(path.parent))


def draws(paths: list[Path]) -> bool:
    """Return whether one of the files is a picture."""
    return any(path.suffix.lower() in SUFFIXES for path in paths)


def write_outputs(paths: list[Path], document: Document, force: bool) -> None:
    """Write the curve to each file in the form its suffix asks for."""
    for path in paths:
        suffix = path.suffix.lower()
        if suffix in SUFFIXES:
            write_new(path, curve_picture(document, suffix), force)
        elif suffix == ".csv":
            write_new(path, curve_csv(document).encode(), force)
        else:
            write_new(path, (rendered(document, "json") + "\n").encode(), force)


def rendered(document: Document, form: str) -> str:
    """Return the curve as a table, as CSV, or as JSON (one line where it has thousands of corners)."""
    if form == "json":
        document = {key: value for key, value in document.items() if key != "line"}
        return json.dumps(document, indent=None if "every_capacity" in document else 2)
    return curve_csv(document).rstrip("\n") if form == "csv" else curve_table(document)
