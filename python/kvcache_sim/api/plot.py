"""One picture in Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvcache_sim.api.calls import public
from kvcache_sim.base.output import write_new
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import Picture
from kvcache_sim.report.pictures import PICTURES
from kvcache_sim.report.plot import picture_of
from kvcache_sim.report.plotting import encoded
from kvcache_sim.report.render import svg, vega_lite

#: Other names of kinds.
_ALSO = {"ttft-waterfall": "waterfall", "hit-rate": "hit-curve"}


class Plot:
    """A picture of one run or of several; a notebook shows it, ``save`` writes it.

    Attributes:
        kind: Kind of the picture, as ``kvsim plot`` lists them.
        title: Title of the picture.
        definition: Definition of the quantities drawn, with their units.
        data: Rows that are drawn.
    """

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self.kind, self.title, self.definition = picture.kind, picture.title, picture.definition
        self.data: list[dict[str, Any]] = [dict(row) for row in picture.data]

    @public
    def save(self, path: str | os.PathLike[str], force: bool = False) -> Path:
        """Write the picture to a file.

        Args:
            path: File with the suffix ``.svg``, ``.png`` or ``.html``.
            force: Replace an existing file.

        Returns:
            The path of the file.

        Raises:
            UsageError: The suffix is unknown.
            OutputExistsError: The file exists and ``force`` is not set.
            InputOutputError: The file cannot be written.
        """
        target = Path(path)
        write_new(target, encoded(self._picture, target.suffix), force)
        return target

    def svg(self) -> str:
        """Return the picture as SVG."""
        return svg(self._picture)

    def vega_lite(self) -> dict[str, Any]:
        """Return the picture as a Vega-Lite specification with its data inside."""
        return vega_lite(self._picture)

    def _repr_html_(self) -> str:
        return f"<figure>{self.svg()}</figure>"

    def __repr__(self) -> str:
        return f"<Plot {self.kind}: {self.title}>"


def draw_plot(kind: str, runs: Sequence[FinishedRun]) -> Plot:
    """Return a picture by its kind (``kvsim plot`` lists them), with ``_`` or ``-``; raises UsageError."""
    name = kind.replace("_", "-")
    return Plot(picture_of(_ALSO.get(name, name) if name not in PICTURES else name, runs))
