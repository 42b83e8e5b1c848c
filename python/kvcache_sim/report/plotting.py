"""Pictures as the bytes of a file, where the plotting libraries, which are an extra, are installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kvcache_sim.base.errors import UsageError

if TYPE_CHECKING:  # a run prints its next step and draws nothing
    from kvcache_sim.report.picture import Picture

_MODULES = ("altair", "vl_convert")
#: File of a report that is not named.
REPORT_FILE = "report.html"
_INSTALL = "pip install 'kvcache-sim[report]'"


#: Labels of an axis in GiB, as a Vega expression: "4 MiB", "16 GiB", "2 TiB".
GIB_LABELS = (
    "datum.value >= 1024 ? format(datum.value / 1024, '.3~g') + ' TiB' : "
    "datum.value >= 1 ? format(datum.value, '.3~g') + ' GiB' : "
    "datum.value * 1024 >= 1 ? format(datum.value * 1024, '.3~g') + ' MiB' : "
    "format(datum.value * 1048576, '.3~g') + ' KiB'"
)


def can_plot() -> bool:
    """Return True if the plotting libraries are installed; none of them is imported."""
    return all(importlib.util.find_spec(module) is not None for module in _MODULES)


def require_plotting() -> None:
    """Raise ``UsageError`` if the plotting libraries are not installed, or cannot be imported."""
    if not can_plot():
        raise UsageError("pictures need the 'report' extra", hint=_INSTALL)
    if sys.flags.optimize > 1:  # Altair takes its signatures from docstrings
        got = "python -OO, or PYTHONOPTIMIZE=2"
        raise UsageError("pictures need the docstrings of their library", got=got, expected="-O at most")


def next_step(run: str) -> str:
    """Return the next command after a run, with its directory quoted for a shell.

    The report is written next to one that exists.
    """
    if can_plot():
        existing = Path(REPORT_FILE).exists()
        return f"next: kvsim report {run}" + (f" -o {run}.html" if existing else "")
    return f"next: kvsim explain {run}   # pictures: {_INSTALL}"


#: Formats of pictures, by the suffix of a file's name.
SUFFIXES = (".svg", ".png", ".html")


def check_suffix(suffix: str, where: str = "-o") -> None:
    """Raise ``UsageError`` for a file suffix that is no format of pictures."""
    if suffix not in SUFFIXES:
        raise UsageError(
            "unknown picture format", where=where, got=repr(suffix), expected=", ".join(SUFFIXES)
        )


def check_file(path: Path, where: str) -> None:
    """Raise ``UsageError``, before anything is computed, for a file that no picture can be written to."""
    check_suffix(path.suffix, where)
    if not path.parent.is_dir():
        raise UsageError("no such folder", where=where, got=str(path.parent))


def encoded(picture: Picture, suffix: str) -> bytes:
    """Return a picture in the format of a suffix: a page (``.html``) is named after what is drawn."""
    from kvcache_sim.report.page import build_page
    from kvcache_sim.report.render import png, subject, svg

    check_suffix(suffix)
    if suffix == ".html":
        title = ": ".join(words for words in (picture.title, subject(picture)) if words)
        return build_page(title, (), [picture]).encode()
    return png(picture) if suffix == ".png" else svg(picture).encode()
