"""Prompt tokens that were computed and not reused, by cause."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.replay.miss_causes import reported_by
from kvcache_sim.report.colours import OTHER, colour_scale
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value
from kvcache_sim.report.reuse import reuse_of
from kvcache_sim.report.time_series import drawn_as

_CAUSES = {cause.name.replace("_", " "): cause.meaning for cause in reported_by("timed")}
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
    tokens_of: dict[str, dict[str, int]] = {}
    for run in runs:
        reuse = reuse_of(run)
        if reuse is None:
            continue
        served = {tier: int(run.finished[f"cached_{tier}_tokens"].sum()) for tier in KV_SOURCES}
        tokens_of[run.label] = served | {
            cause: int(values.sum()) for cause, values in zip(_CAUSES, reuse.missed.values(), strict=True)
        }
    sources = [*KV_SOURCES, *_CAUSES]
    shown = drawn_as({source: sum(tokens[source] for tokens in tokens_of.values()) for source in sources})
    drawn = list(dict.fromkeys(sorted(shown.values(), key=lambda name: name == OTHER)))
    for label, tokens in tokens_of.items():
        total = max(1, sum(tokens.values()))
        table += [(label, source, count, round(count / total, 5)) for source, count in tokens.items()]
        for order, name in enumerate(drawn):
            count = sum(tokens[source] for source, under in shown.items() if under == name)
            row: dict[str, Value] = {"run": label, "source": name, "order": order, "tokens": count}
            data.append(row | {"share": round(count / total, 5)})
    if not data:
        return NothingToDraw("misses", _TITLE, "the run's trace has moved or changed: causes need it")
    chart = (
        alt.Chart(width=640, height=40 + 30 * len(runs))
        .mark_bar()
        .encode(
            x=alt.X("tokens:Q", title="prompt tokens", stack="zero"),
            y=alt.Y("run:N", sort=[run.label for run in runs], title=None),
            color=alt.Color("source:N", scale=colour_scale(drawn), sort=drawn, title=None),
            order=alt.Order("order:Q"),
            tooltip=[
                "run:N",
                "source:N",
                alt.Tooltip("tokens:Q", format=","),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
    headings = ("run", "source", "tokens", "share of prompt tokens")
    return Picture("misses", _TITLE, _DEFINITION, data, chart, Table(headings, tuple(table)))
