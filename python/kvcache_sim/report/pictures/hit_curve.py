"""The hit rate at every cache size, with the run itself as a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvcache_sim.base.tiers import TIERS
from kvcache_sim.base.units import format_percent
from kvcache_sim.replay.curve.hits import hit_curve
from kvcache_sim.replay.curve.others import policy_points
from kvcache_sim.replay.curve.steps import reference_points
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts, with_answers
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.curve.build import drawn_sizes
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, side_by_side
from kvcache_sim.report.plotting import GIB_LABELS
from kvcache_sim.report.upper_bound import upper_bound_of
from kvcache_sim.scenario.load import scenario_of_run

_TITLE = "Hit rate over cache size"
_DEFINITION = (
    "Share of prompt tokens found in one cache of each size that sees all requests one after another. "
    "Lines: least recently used (every size from one pass, drawn as the steps it has); Belady's optimum, "
    "through the sizes that were replayed; the upper bound (unbounded cache). Answers are in the cache if "
    "the run keeps them (cache.cache_output). Knee: the corner farthest above the straight line to the "
    "footprint. This run: its tiers added up over its machines, fast to slow, at the token hit rate it "
    "reached with them; routing, time and writing put it below the line."
)
_OPTIMUM_POINTS = 8
_LINES = ("lru", "optimum", "upper bound", "this run", "knee")


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return the curve of each run's trace with its marks."""
    import altair as alt

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    runs = [run for run in runs if run.trace is not None]
    labels = [run.label for run in runs]
    for run in runs:
        points = _points(run, len(runs) > 1)
        data += points
        listed = [p for p in points if p["line"] != "lru"] + [p for p in points if p["line"] == "lru"][::10]
        table += [(run.label, p["line"], p["blocks"], p["gib"], p["share"], p["note"]) for p in listed]
    if not data:
        return NothingToDraw("hit-curve", _TITLE, "the run's trace is not where it was")
    base = alt.Chart(alt.NamedData("picture")).encode(
        x=alt.X(
            "gib:Q",
            scale=alt.Scale(type="log", base=2, nice=False),
            title="capacity (log scale)",
            axis=alt.Axis(labelExpr=GIB_LABELS),
        ),
        y=alt.Y("share:Q", title="prompt tokens found", axis=alt.Axis(format="%")),
        color=alt.Color("line:N", scale=colour_scale(_LINES), sort=list(_LINES), title=None),
        tooltip=["run:N", "line:N", "note:N", "blocks:Q", "gib:Q", alt.Tooltip("share:Q", format=".2%")],
    )
    is_line = "datum.line == 'lru' || datum.line == 'upper bound'"  # known everywhere
    is_optimum = "datum.line == 'optimum'"
    lines = base.transform_filter(is_line).mark_line(interpolate="step-after")
    optimum = base.transform_filter(is_optimum).mark_line(interpolate="monotone")
    marks = base.transform_filter(f"!({is_line} || {is_optimum})").mark_point(filled=True, size=70, opacity=1)
    named = base.encode(text="note:N").transform_filter("datum.note != ''")
    bound = named.transform_filter("datum.line == 'upper bound'").mark_text(align="left", dx=4, dy=-8)
    # the line rises to the right: below a point its right is free, but at the chart's end
    inner, outer = "datum.line != 'upper bound' && !datum.last", "datum.last"
    sizes = named.transform_filter(inner).mark_text(align="left", dx=8, dy=8)
    largest = named.transform_filter(outer).mark_text(align="right", dy=-12)
    chart = side_by_side(alt.layer(lines, optimum, marks, bound, sizes, largest), labels, height=300)
    if len(runs) > 1:  # a column is as wide as its plot, whose texts may reach past its right edge
        chart = chart.properties(bounds="flush", spacing=28)
    headings = ("run", "line", "blocks", "GiB", "token hit rate", "note")
    return Picture("hit-curve", _TITLE, _DEFINITION, data, chart, Table(headings, tuple(table)))


def _points(run: FinishedRun, in_columns: bool) -> list[dict[str, Value]]:
    assert run.trace is not None
    block = run.block_size_tokens
    settings = scenario_of_run(run.scenario_text, run.directory).settings
    gib_a_block = block * settings.cache.kv_bytes_per_token / 2**30
    request = ReplayRequest(run.trace, block, 0)
    prompts = blocks_of_prompts(request)
    if settings.cache.cache_output:
        prompts = with_answers(prompts)
    curve = hit_curve(prompts, request.touch_from)
    tokens = max(1, int(run.trace.input_tokens.sum()))
    tiers = _own_sizes(run, settings)
    most = max(1, curve.hit_blocks.last, *(size for _, size, _ in tiers))
    sizes = drawn_sizes(2 * most)
    upper_bound = upper_bound_of(run)
    assert upper_bound is not None, "the trace is known"

    name_of_all = tiers[-1][0] if tiers else ""

    def point(line: str, blocks: int, share: float, note: str = "") -> dict[str, Value]:
        gib = round(blocks * gib_a_block, 4)
        return {
            "run": run.label,
            "line": line,
            "blocks": blocks,
            "gib": gib,
            "share": round(share, 6),
            "note": note,
            "last": line == "this run" and name_of_all == note,
        }

    found = (curve.hit_tokens.at(sizes) / tokens).tolist()
    points = [point("lru", int(size), share) for size, share in zip(sizes.tolist(), found, strict=True)]
    said = f"{'' if in_columns else 'upper bound '}{format_percent(upper_bound)}"  # the legend names it
    points += [point("upper bound", int(sizes[0]), upper_bound, said)]
    points += [point("upper bound", int(sizes[-1]), upper_bound)]
    optimum_sizes = [
        int(s) for s in np.unique(np.geomspace(64, max(65, most), _OPTIMUM_POINTS).astype(np.int64))
    ]
    optimum: list[dict[str, Any]] = policy_points(prompts, request, "belady", optimum_sizes)
    points += [
        point("optimum", size, row["hit_tokens"] / tokens)
        for size, row in zip(optimum_sizes, optimum, strict=True)
        if "hit_tokens" in row
    ]
    knee = reference_points(curve.hit_blocks).knee_blocks
    if knee:
        points.append(point("knee", knee, float(curve.hit_tokens.at(np.array([knee]))[0]) / tokens, "knee"))
    return points + [point("this run", size, share, name) for name, size, share in tiers]


def _own_sizes(run: FinishedRun, settings: Any) -> list[tuple[str, int, float]]:
    """Return (tiers so far, their blocks over all machines, token hit rate from them), fast to slow."""
    rows = run.finished
    tokens = max(1, int(rows["input_tokens"].sum()))
    sizes: list[tuple[str, int, float]] = []
    names, blocks, hits = [], 0, 0
    for tier in TIERS:
        capacities = [t.capacity_blocks for m in settings.machines for t in m.tiers if t.name == tier]
        if not capacities or None in capacities:
            continue
        names.append(tier)
        blocks += sum(capacities)
        hits += int(rows[f"cached_{tier}_tokens"].sum())
        sizes.append((" + ".join(names), blocks, hits / tokens))
    return sizes
