"""One picture of finished runs."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.base.errors import UsageError
from kvcache_sim.report.finished import FinishedRun, find_trace
from kvcache_sim.report.picture import NothingToDraw, Picture
from kvcache_sim.report.plotting import check_suffix, encoded, require_plotting
from kvcache_sim.report.render import draw


def picture_bytes(kind: str, runs: Sequence[FinishedRun], suffix: str) -> bytes:
    """Return one picture in the format of a file name's suffix; raises as ``picture_of`` and ``encoded``."""
    check_suffix(suffix)
    return encoded(picture_of(kind, runs), suffix)


def picture_of(kind: str, runs: Sequence[FinishedRun]) -> Picture:
    """Return one picture of finished runs, their traces read again where they are still there.

    Raises ``UsageError`` for an unknown kind, a missing extra, or when there is nothing to draw.
    """
    require_plotting()
    for run in runs:
        find_trace(run)
    picture = draw(kind, runs)
    if isinstance(picture, NothingToDraw):
        raise UsageError(f"nothing to draw for {kind}: {picture.reason}")
    return picture
