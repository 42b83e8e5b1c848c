"""Draws the curve, and writes it to files by their suffix."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.output import refuse_existing, write_new
from kvcache_sim.base.units import format_percent
from kvcache_sim.report.colours import colours_of
from kvcache_sim.report.curve.build import Document
from kvcache_sim.report.curve.text import curve_csv, curve_table
from kvcache_sim.report.picture import Picture, Table, Value
from kvcache_sim.report.plotting import GIB_LABELS, SUFFIXES, encoded, require_plotting
from kvcache_sim.report.time_series import MOST_SERIES

_GIB = 2**30
_BOUNDS = ("upper bound", "prompts alone")
_TITLE = "Hit rate over cache size"
_DEFINITION = (
    "Share of the full blocks of prompts found in one cache of each size that sees all requests one after "
    "another. Least recently used (lru) is known at every size and drawn as the steps it has; other policies "
    "were replayed at the sizes marked. Upper bound: an unbounded cache that keeps answers too. Prompts "
    "alone, as this curve counts: one that does not. Knee: the size beyond which more capacity pays less."
)


def _name(document: Document) -> str:
    return PurePath(document["trace"] or "trace").name


def curve_picture(document: Document) -> Picture:
    """Return the picture of a curve, which needs the ``report`` extra.

    The axis is GiB where the model is known, else blocks. A document made without ``line``, such as a sampled
    one, has points alone.
    """
    import altair as alt

    size = document.get("block_size", 1)  # blocks of a model of groups have their own bytes
    block_bytes = document.get("bytes_per_block") or size * (document["kv_bytes_per_token"] or 0)
    title = "capacity" if block_bytes else f"capacity, blocks of {size} tokens"
    data = _data(document, block_bytes / _GIB if block_bytes else 1.0)
    drawn = list(dict.fromkeys(str(row["series"]) for row in data))
    colour = alt.Color(
        "series:N", scale=alt.Scale(domain=drawn, range=colours_of(drawn)), sort=drawn, title=None
    )
    base = alt.Chart(alt.NamedData("picture")).encode(
        x=alt.X(
            "capacity:Q",
            title=f"{title} (log scale)",
            scale=alt.Scale(type="log", base=2, nice=False),
            axis=alt.Axis(labelExpr=GIB_LABELS) if block_bytes else alt.Axis(format="~s"),
        ),
        y=alt.Y("share:Q", title="share of blocks found", axis=alt.Axis(format="%")),
        color=colour,
        tooltip=["policy:N", "capacity:Q", alt.Tooltip("share:Q", format=".2%")],
    )
    lines = base.transform_filter("datum.mark == 'line'").mark_line(interpolate="step-after")
    points = base.transform_filter("datum.mark == 'point'").mark_point(filled=True, size=70, opacity=1)
    named = (
        base.transform_filter("datum.label != ''").mark_text(align="left", dx=4, dy=-8).encode(text="label:N")
    )
    chart = alt.layer(lines, points, named).properties(width=640, height=360)
    rows = tuple(
        (row["policy"], row["capacity"], row["share"])
        for row in data
        if row["mark"] == "point" or row["policy"] in _BOUNDS
    )
    return Picture(
        "curve",
        _TITLE,
        _DEFINITION,
        data,
        chart,
        Table(("policy", f"{title}, GiB" if block_bytes else title, "blocks found"), rows),
        _name(document),
    )


def _data(document: Document, scale: float) -> list[dict[str, Value]]:
    data: list[dict[str, Value]] = []
    series = _series(document)

    def add(policy: str, mark: str, blocks: int, share: float) -> None:
        row: dict[str, Value] = {"policy": policy, "series": series.get(policy, policy), "mark": mark}
        data.append(row | {"capacity": round(blocks * scale, 5), "share": round(share, 6), "label": ""})

    if "line" in document:
        references = max(1, document["queried_blocks"])
        sizes, hits = document["line"]["capacity_blocks"], document["line"]["hit_blocks"]
        for blocks, found in zip(sizes, hits, strict=True):
            add("lru", "line", blocks, found / references)
        bounds = dict(zip(_BOUNDS, (document["upper_bound"], document["unbounded"]), strict=True))
        if document["upper_bound"] == document["unbounded"]:
            del bounds["prompts alone"]
        for name, bound in bounds.items():
            for blocks in (sizes[0], sizes[-1]):
                add(name, "line", blocks, bound["block_hit_rate"])
            data[-2]["label"] = f"{name} {format_percent(bound['block_hit_rate'])}"
    for point in document["points"]:
        for policy, found in point.items():
            if not policy.startswith("capacity_"):
                share = found.get("block_hit_rate", found.get("hit_rate"))
                add(policy, "point", point["capacity_blocks"], share)
    knee = document.get("landmarks", {}).get("knee")
    if knee and knee["capacity_blocks"]:
        add("knee", "point", knee["capacity_blocks"], knee["block_hit_rate"])
    return data


def _series(document: Document) -> dict[str, str]:
    """Return the name each policy is drawn under: as many as readers can distinguish, the rest as one."""
    policies = [name for name in (document["points"] or [{}])[0] if not name.startswith("capacity_")]
    others: Any = [name for name in policies if name != "lru"]
    # lru, the knee and the bounds are drawn too
    headroom = MOST_SERIES - 3 - (document.get("upper_bound") != document.get("unbounded"))
    if len(others) <= headroom:
        return {}
    return dict.fromkeys(others[headroom - 1 :], "other")


_TEXTS = (".json", ".csv")


def check_outputs(paths: list[Path], force: bool) -> None:
    """Raise ``UsageError``, before anything is computed, for files that could not be written."""
    if force and not paths:
        raise UsageError("has no effect without --output", where="--force")
    for path in paths:
        if path.suffix.lower() not in (*_TEXTS, *SUFFIXES):
            expected = ", ".join((*_TEXTS, *SUFFIXES))
            raise UsageError("unknown kind of file", where="--output", got=str(path), expected=expected)
        refuse_existing(path, force)
        if not path.parent.is_dir():
            raise UsageError("no such folder", where="--output", got=str(path.parent))


def draws(paths: list[Path]) -> bool:
    """Return True if one of the files is a picture."""
    return any(path.suffix.lower() in SUFFIXES for path in paths)


def write_outputs(paths: list[Path], document: Document, force: bool) -> None:
    """Write the curve to each file in the form its suffix asks for."""
    for path in paths:
        suffix = path.suffix.lower()
        if suffix in SUFFIXES:
            require_plotting()
            write_new(path, encoded(curve_picture(document), suffix), force)
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
