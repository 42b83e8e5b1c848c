"""Why prompt tokens were computed and not reused."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.replay.miss_causes import told_by
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, colour_scale
from kvcache_sim.report.reuse import reuse_of
from kvcache_sim.tiers import PLACES

_CAUSES = {cause.name.replace("_", " "): cause.meaning for cause in told_by("timed")}
_TITLE = "Where the prompt's tokens came from"
_DEFINITION = (
    "All prompt tokens of finished requests: served by a tier, or computed for one cause each. "
    + "; ".join(f"{cause}: {meaning}" for cause, meaning in _CAUSES.items())
)


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return one stacked bar a run."""
    import altair as alt

    data: list[dict[str, Value]] = []
    table: list[tuple[Value, ...]] = []
    for run in runs:
        reuse = reuse_of(run)
        if reuse is None:
            continue
        served = {tier: int(run.finished[f"cached_{tier}_tokens"].sum()) for tier in PLACES}
        tokens = served | {
            cause: int(values.sum()) for cause, values in zip(_CAUSES, reuse.missed.values(), strict=True)
        }
        total = max(1, sum(tokens.values()))
        for order, (source, count) in enumerate(tokens.items()):
            data.append({"run": run.label, "source": source, "order": order, "tokens": count})
            table.append((run.label, source, count, round(count / total, 5)))
    if not data:
        return NothingToDraw("misses", _TITLE, "the run's trace is not where it was: causes are told from it")
    sources = [*PLACES, *_CAUSES]
    chart = (
        alt.Chart(width=640, height=40 + 30 * len(runs))
        .mark_bar()
        .encode(
            x=alt.X("tokens:Q", title="prompt tokens", stack="zero"),
            y=alt.Y("run:N", sort=[run.label for run in runs], title=None),
            color=alt.Color("source:N", scale=colour_scale(sources), sort=sources, title=None),
            order=alt.Order("order:Q"),
            tooltip=["run:N", "source:N", alt.Tooltip("tokens:Q", format=",")],
        )
    )
    headings = ("run", "source", "tokens", "share of prompt tokens")
    return Picture("misses", _TITLE, _DEFINITION, data, chart, Table(headings, tuple(table)))
