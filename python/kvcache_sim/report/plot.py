"""One picture as the bytes of a file."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.errors import UsageError
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.page import build_page
from kvcache_sim.report.picture import NothingToDraw
from kvcache_sim.report.render import draw, png, require_plotting, svg
from kvcache_sim.report.trace_of import find_trace

_SUFFIXES = (".svg", ".png", ".html")


def picture_bytes(kind: str, runs: Sequence[FinishedRun], suffix: str) -> bytes:
    """Return one picture in the format of a file name's suffix.

    Raises ``UsageError`` for an unknown kind or suffix, a missing extra, or when there is nothing to draw.
    """
    require_plotting()
    if suffix not in _SUFFIXES:
        raise UsageError(
            "unknown picture format", where="-o", got=repr(suffix), expected=", ".join(_SUFFIXES)
        )
    for run in runs:
        find_trace(run)
    picture = draw(kind, runs)
    if isinstance(picture, NothingToDraw):
        raise UsageError(f"nothing to draw for {kind}: {picture.reason}")
    if suffix == ".html":
        return build_page(picture.title, (), [picture]).encode()
    return png(picture) if suffix == ".png" else svg(picture).encode()
