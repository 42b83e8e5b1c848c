"""The share of a context that is still cached after its idle time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvcache_sim.report.colours import OTHER, colour_scale
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value
from kvcache_sim.report.reuse import reuse_of
from kvcache_sim.report.time_series import drawn_as

_TITLE = "Survival of a context over its idle time"
_DEFINITION = (
    "The share of the leading tokens of an earlier request that is still served from a tier; by the time "
    "since that context was last in use (finish of its last user to this arrival)."
)
_EDGES_S = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return one stepped line a run over the idle time; of more than six runs the last are drawn as one."""
    import altair as alt

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    names = [_name(index) for index in range(len(_EDGES_S))]
    drawn = drawn_as({run.label: 1 for run in runs})
    rest: dict[int, list[int]] = {}
    for run in runs:
        reuse = reuse_of(run)
        if reuse is None:
            continue
        seen = reuse.idle_ns >= 0
        bucket = np.searchsorted(np.array(_EDGES_S) * 1e9, reuse.idle_ns[seen], side="right") - 1
        known, kept = reuse.seen[seen], np.minimum(reuse.cached, reuse.seen)[seen]
        for index in np.unique(bucket).tolist():
            chosen = bucket == index
            tokens, served, requests = int(known[chosen].sum()), int(kept[chosen].sum()), int(chosen.sum())
            table.append((run.label, names[index], requests, tokens, _share(served, tokens)))
            if drawn[run.label] == OTHER:
                pooled = rest.setdefault(index, [0, 0, 0])
                rest[index] = [a + b for a, b in zip(pooled, (tokens, served, requests), strict=True)]
            else:
                data.append(_point(run.label, names[index], _share(served, tokens), requests))
    for index, (tokens, served, requests) in sorted(rest.items()):
        data.append(_point(OTHER, names[index], _share(served, tokens), requests))
    pairs = {(str(point["run"]), str(point["idle"])) for point in data}
    # The line breaks between ranges that are not adjacent, and at a range without a request.
    data += [
        _point(run, name, None, 0)
        for run in dict.fromkeys(str(point["run"]) for point in data)
        for name in names[: 1 + max((names.index(idle) for _, idle in pairs), default=0)]
        if (run, name) not in pairs
    ]
    if not data:
        return NothingToDraw(
            "survival", _TITLE, "nothing was asked for twice, or the trace is not where it was"
        )
    labels = list(dict.fromkeys(drawn.values()))
    chart = (
        alt.Chart(width=640, height=220)
        .mark_line(point=True, interpolate="step")
        .encode(
            x=alt.X("idle:O", sort=names, title="idle time", axis=alt.Axis(labelAngle=0)),
            y=alt.Y(
                "share:Q",
                title="tokens still served",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=alt.Color("run:N", scale=colour_scale(labels), sort=labels, title=None),
            tooltip=["run:N", "idle:O", alt.Tooltip("share:Q", format=".1%"), "requests:Q"],
        )
    )
    headings = ("run", "idle time", "requests", "tokens seen before", "share still served")
    return Picture("survival", _TITLE, _DEFINITION, data, chart, Table(headings, tuple(table)))


def _share(served: int, tokens: int) -> float | None:
    return round(served / tokens, 5) if tokens else None


def _point(label: str, idle: str, share: float | None, requests: int) -> dict[str, Value]:
    return {"run": label, "idle": idle, "share": share, "requests": requests}


def _name(index: int) -> str:
    start = _EDGES_S[index]
    return f"{start}–{_EDGES_S[index + 1]} s" if index + 1 < len(_EDGES_S) else f"over {start} s"
