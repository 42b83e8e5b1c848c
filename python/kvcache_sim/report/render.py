"""Pictures as Vega, SVG, PNG or HTML: the only module that calls the plotting libraries."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture
from kvcache_sim.report.pictures import PICTURES

#: Text and rules take the page's own colour, so that one picture serves light, dark and paper.
_CONFIG: dict[str, Any] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "titleFontWeight": "normal",
        "domainColor": "currentColor",
        "tickColor": "currentColor",
        "domainOpacity": 0.4,
        "tickOpacity": 0.4,
        "gridColor": "currentColor",
        "gridOpacity": 0.12,
    },
    "legend": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "titleFontWeight": "normal",
        "orient": "top",
        "columns": {"expr": "max(1, floor(page_width / 130))"},
        "labelLimit": 110,
    },
    "header": {"labelColor": "currentColor", "titleColor": "currentColor", "labelLimit": 130},
    "title": {
        "color": "currentColor",
        "subtitleColor": "currentColor",
        "anchor": "start",
        "frame": "bounds",
        "limit": {"expr": "page_width"},
        "fontSize": 13,
        "subtitleFontSize": 12,
        "offset": 8,
    },
    "text": {"color": "currentColor"},
    "rule": {"color": "currentColor"},
}


#: Width in pixels of a picture that is a file of its own.
_WIDTH = 700


def draw(kind: str, runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return one picture of the runs; raises ``UsageError`` with the nearest kind for an unknown one."""
    if kind not in PICTURES:
        near = close_matches(kind, PICTURES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"kinds: {', '.join(PICTURES)}"
        raise UsageError(f"no such picture: {kind}", hint=hint)
    module, _, function = PICTURES[kind].drawn_by.partition(":")
    drawing = importlib.import_module(f"kvcache_sim.report.pictures.{module}")
    picture: Picture | NothingToDraw = getattr(drawing, function or "draw")(runs)
    return picture


def vega_lite(picture: Picture) -> dict[str, Any]:
    """Return the picture as a Vega-Lite specification with its data inside."""
    specification: dict[str, Any] = _without_data(picture.chart.to_dict(validate=False))
    specification["title"] = {"text": picture.title, "subtitle": subject(picture)}
    # The page sets the width of each chart, so that legends and titles wrap there.
    specification["params"] = [{"name": "page_width", "value": _WIDTH}, *specification.get("params", [])]
    specification["data"] = {"values": picture.data}
    # Charts side by side have their axes' titles side by side too.
    limit = {"titleLimit": {"expr": f"(page_width - 60) / {columns_of(picture)} - 8"}}
    specification["config"] = {**_CONFIG, "axisX": limit}
    return specification


def subject(picture: Picture) -> str:
    """Return the subject of a picture: the names of the runs, the file or the sweep."""
    return picture.subject or ", ".join(
        dict.fromkeys(str(row["run"]) for row in picture.data if "run" in row)
    )


def columns_of(picture: Picture) -> int:
    """Return the number of charts side by side: one a run if the picture has a column for each."""
    facet = picture.chart.to_dict(validate=False).get("facet", {})
    return len({row["run"] for row in picture.data}) if "column" in facet else 1


def _without_data(specification: Any) -> Any:
    """Return a specification whose parts all draw from the data at its top."""
    if isinstance(specification, list):
        return [_without_data(part) for part in specification]
    if not isinstance(specification, dict):
        return specification
    return {key: _without_data(part) for key, part in specification.items() if key != "data"}


def vega(picture: Picture) -> dict[str, Any]:
    """Return the picture compiled to Vega."""
    import vl_convert

    compiled: dict[str, Any] = vl_convert.vegalite_to_vega(vega_lite(picture))
    return compiled


def svg(picture: Picture) -> str:
    """Return the picture as SVG on white ground."""
    import vl_convert

    specification = vega_lite(picture)
    specification["config"]["background"] = "white"
    drawn: str = vl_convert.vegalite_to_svg(specification)
    return drawn.replace("currentColor", "#1b1f24")


def png(picture: Picture) -> bytes:
    """Return the picture as PNG on white ground, at twice its size."""
    import vl_convert

    drawn: bytes = vl_convert.svg_to_png(svg(picture), scale=2.0)
    return drawn


def vega_script() -> str:
    """Return the Vega runtime as one script, from the plotting library itself.

    Bundling takes seconds, so the text is kept under ``$XDG_CACHE_HOME/kvsim`` for the next report.
    """
    from importlib.metadata import version

    import vl_convert

    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvsim"
    kept = root / f"vega-{vl_convert.get_vega_version()}-{version('vl-convert-python')}.js"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = kept.read_text(encoding="utf-8")
        if text.endswith(_END):
            return text
    bundled: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;") + _END
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        root.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(bundled, encoding="utf-8")
        temporary.replace(kept)
    return bundled


_END = "\n/* end of vega */\n"
