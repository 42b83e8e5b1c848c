"""The parts of TTFT at its percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES
from kvcache_sim.metrics.ttft_parts import ROWS
from kvcache_sim.report.colours import OTHER, colour_scale
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, side_by_side
from kvcache_sim.report.time_series import drawn_as

#: Drawn part → its column. All sum to TTFT.
PARTS: dict[str, str] = {}
for _part in ROWS:
    if _part.colour is not None:
        PARTS[_part.words] = _part.column
    else:  # waits for KV, by cause
        PARTS |= {"fetch write-back": "fetch_room_ns"}
        PARTS |= {f"fetch {source}": f"fetch_{source}_ns" for source in KV_SOURCES[COMPUTE + 1 :]}
_BANDS = {"p50": (0.49, 0.51), "p90": (0.89, 0.91), "p99": (0.985, 0.995)}
_TITLE = "What TTFT is made of"
_DEFINITION = (
    "Mean parts of the requests whose TTFT lies around its percentile (p50: ranks 49–51 %, p90: 89–91 %, "
    "p99: 98.5–99.5 %). Client: before the scheduler; queue: waiting for admission or the next step; "
    "fetch: exposed waiting for KV by tier, or for free blocks; prefill: computing the missed part; "
    "handover: transfer to the decode machine. The parts sum to TTFT; beyond six the smallest are drawn as "
    "one."
)


def bands(rows: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the row numbers in the average (all) and in each percentile's band, never empty."""
    ttft = rows["first_token_ns"] - rows["arrival_ns"]
    order = np.argsort(ttft, kind="stable")
    count = len(order)
    chosen = {"avg": order}
    for name, (low, high) in _BANDS.items():
        start = min(int(low * count), count - 1)
        chosen[name] = order[start : max(start + 1, int(np.ceil(high * count)))]
    return chosen


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return the stacked bars of TTFT's parts."""
    import altair as alt

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    means = {
        (run.label, band): {part: float(run.finished[c][chosen].mean()) / 1e6 for part, c in PARTS.items()}
        for run in runs
        if len(run.finished["request"])
        for band, chosen in bands(run.finished).items()
    }
    shown = drawn_as({part: sum(parts[part] for parts in means.values()) for part in PARTS})
    drawn = list(dict.fromkeys(sorted(shown.values(), key=lambda name: name == OTHER)))
    for (label, band), parts in means.items():
        table.append((label, band, *(round(ms, 3) for ms in parts.values()), round(sum(parts.values()), 3)))
        for order, name in enumerate(drawn):
            ms = sum(parts[part] for part, under in shown.items() if under == name)
            data.append({"run": label, "band": band, "part": name, "order": order, "ms": round(ms, 4)})
    if not data:
        reason = "no time passed before the first token" if means else "no request finished"
        return NothingToDraw("waterfall", _TITLE, reason)
    chart = (
        alt.Chart()
        .mark_bar()
        .encode(
            x=alt.X("ms:Q", title="ms", stack="zero"),
            y=alt.Y("band:N", sort=["avg", *_BANDS], title=None),
            color=alt.Color("part:N", scale=colour_scale(drawn), sort=drawn, title=None),
            order=alt.Order("order:Q"),
            tooltip=["run:N", "band:N", "part:N", "ms:Q"],
        )
    )
    headings = ("run", "TTFT", *(f"{part}, ms" for part in PARTS), "sum, ms")
    labels = [run.label for run in runs]
    drawn = side_by_side(chart, labels, height=160)
    return Picture("waterfall", _TITLE, _DEFINITION, data, drawn, Table(headings, tuple(table)))
