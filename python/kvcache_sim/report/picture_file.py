"""A picture as the bytes of a file."""

from __future__ import annotations

from pathlib import Path

from kvcache_sim.errors import UsageError
from kvcache_sim.report.page import build_page
from kvcache_sim.report.picture import Picture
from kvcache_sim.report.render import png, subject, svg

#: Formats of pictures, by the suffix of a file's name.
SUFFIXES = (".svg", ".png", ".html")


def check_suffix(suffix: str, where: str = "-o") -> None:
    """Refuse a file name's suffix that is no format of pictures (``UsageError``)."""
    if suffix not in SUFFIXES:
        raise UsageError(
            "unknown picture format", where=where, got=repr(suffix), expected=", ".join(SUFFIXES)
        )


def check_file(path: Path, where: str) -> None:
    """Refuse, before anything is computed, a file that no picture can be written to (``UsageError``)."""
    check_suffix(path.suffix, where)
    if not path.parent.is_dir():
        raise UsageError("no such folder", where=where, got=str(path.parent))


def encoded(picture: Picture, suffix: str) -> bytes:
    """Return a picture in the format of a suffix: a page (``.html``) is named after what is drawn."""
    check_suffix(suffix)
    if suffix == ".html":
        title = ": ".join(words for words in (picture.title, subject(picture)) if words)
        return build_page(title, (), [picture]).encode()
    return png(picture) if suffix == ".png" else svg(picture).encode()
