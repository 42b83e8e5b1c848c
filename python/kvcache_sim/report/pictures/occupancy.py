"""Blocks of each tier by use, over time."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.base.tiers import TIERS
from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value
from kvcache_sim.report.time_series import series_names, summed_over_machines, thinned, time_axis

_STATES = {"held": "held", "cached": "cached", "in_flight": "in flight", "free": "free"}
_TITLE = "Occupancy of each tier"
_DEFINITION = (
    "Blocks summed over the machines. Held: in use by running requests or by a transfer; cached: kept for "
    "reuse; in flight: being written or evicted; free: unused (an unbounded tier has none)."
)


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return stacked areas by state, a row a tier."""
    import altair as alt

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    tiers: dict[str, None] = {}
    for run in runs:
        names = series_names(run)
        present = [tier for tier in TIERS if f"{tier}.held" in names]
        tiers.update(dict.fromkeys(present))
        for tier in present:
            figures: list[Value] = []
            for order, (state, word) in enumerate(_STATES.items()):
                times, values = thinned(*summed_over_machines(run, f"{tier}.{state}"))
                figures += (
                    [round(float(values.mean()), 1), int(values.max())] if len(values) else [None, None]
                )
                data += [
                    {
                        "run": run.label,
                        "tier": tier,
                        "state": word,
                        "order": order,
                        "s": round(time / 1e9, 3),
                        "blocks": int(value),
                    }
                    for time, value in zip(times.tolist(), values.tolist(), strict=True)
                    if value >= 0
                ]
            table.append((run.label, tier, *figures))
    if not data:
        return NothingToDraw(
            "occupancy", _TITLE, "no samples of tiers, or an older version's: simulate again"
        )
    # A grid of charts is filled from its start: a run without a tier needs a cell of nothing there.
    filled = {(row["run"], row["tier"]) for row in data}
    empty = [(run.label, tier) for run in runs for tier in tiers if (run.label, tier) not in filled]
    nothing: dict[str, Value] = {"state": "free", "order": 0, "s": 0.0, "blocks": 0}
    data += [{**nothing, "run": label, "tier": tier} for label, tier in empty]
    words = list(_STATES.values())
    row = alt.Row("tier:N", sort=list(tiers), title=None)
    labels = [run.label for run in runs]
    columns = {"column": alt.Column("run:N", sort=labels, title=None)} if len(runs) > 1 else {}
    chart = (
        alt.Chart(width=max(160, 640 // len(runs)), height=110)
        .mark_area(interpolate="step-after")
        .encode(
            x=time_axis("simulated time", data),
            y=alt.Y("blocks:Q", stack="zero", title="blocks"),
            color=alt.Color("state:N", scale=colour_scale(words), sort=words, title=None),
            order=alt.Order("order:Q"),
            tooltip=["run:N", "tier:N", "state:N", "s:Q", alt.Tooltip("blocks:Q", format=",")],
        )
        .facet(data=alt.NamedData("picture"), row=row, **columns)
        .resolve_scale(y="independent")
    )
    headings = ("run", "tier", *(f"{w}, {what}" for w in words for what in ("mean", "most")))
    return Picture("occupancy", _TITLE, _DEFINITION, data, chart, Table(headings, tuple(table)))
