"""Cumulative distributions of latencies, split into classes of requests: TTFT, TPOT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.report.colours import colour_scale
from kvcache_sim.report.distributions import HIT_CLASSES, distribution, hit_class, percentile, slowest_tier
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture, Table, Value, side_by_side

_PERCENTILES = (50, 75, 90, 99)

#: Returns, of a run: milliseconds, and each value's class as an index into the names (−1: left out).
Split = Callable[[FinishedRun], tuple[NDArray[Any], NDArray[Any]]]


class Heading(NamedTuple):
    """The kind of a picture, its title, and the definition of its figure."""

    kind: str
    title: str
    definition: str


def draw_split(
    heading: Heading, runs: Sequence[FinishedRun], names: Sequence[str], split: Split
) -> Picture | NothingToDraw:
    """Return the distribution picture under a heading with a curve a class."""
    import altair as alt

    kind, title, definition = heading
    data: list[dict[str, Value]] = []
    rows: list[tuple[Value, ...]] = []
    for run in runs:
        values_ms, classes = split(run)
        for index, name in enumerate(names):
            chosen = values_ms[classes == index]
            for value, share in distribution(np.maximum(chosen, 0.001)):
                data.append(
                    {"run": run.label, "class": name, "ms": round(value, 4), "share": round(share, 5)}
                )
            figures = [percentile(chosen, p) for p in _PERCENTILES]
            rounded = [None if figure is None else round(figure, 3) for figure in figures]
            rows.append((run.label, name, len(chosen), *rounded))
    if not data:
        return NothingToDraw(kind, title, "no request finished")
    drawn = [name for name in names if any(row["class"] == name for row in data)]
    chart = (
        alt.Chart()
        .mark_line(interpolate="step-after", clip=True)
        .encode(
            x=alt.X("ms:Q", scale=alt.Scale(type="log"), title="ms (log scale)"),
            y=alt.Y("share:Q", title="share of requests", axis=alt.Axis(format="%")),
            color=alt.Color("class:N", scale=colour_scale(drawn), sort=drawn, title=None),
            tooltip=["run:N", "class:N", "ms:Q", alt.Tooltip("share:Q", format=".1%")],
        )
    )
    headings = ("run", "class", "requests", *(f"p{p}, ms" for p in _PERCENTILES))
    labels = [run.label for run in runs]
    return Picture(kind, title, definition, data, side_by_side(chart, labels), Table(headings, tuple(rows)))


def _ttft_ms(run: FinishedRun) -> NDArray[Any]:
    return np.asarray((run.finished["first_token_ns"] - run.finished["arrival_ns"]) / 1e6)


def ttft(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return the TTFT distribution of each hit class."""
    definition = (
        "TTFT: first token − arrival. Full hit: every block that may hit was served from a tier (the last "
        "token is always computed); partial hit: some were; miss: none."
    )
    return draw_split(
        Heading("ttft", "Time to first token, by hit", definition),
        runs,
        HIT_CLASSES,
        lambda run: (_ttft_ms(run), hit_class(run.finished, run.block_size_tokens)),
    )


def ttft_by_tier(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return the TTFT distribution of each tier."""
    definition = (
        "TTFT: first token − arrival. A request counts under the slowest tier that served part of its prompt "
        f"({', '.join(KV_SOURCES)}), or under none."
    )
    return draw_split(
        Heading("ttft-by-tier", "Time to first token, by tier", definition),
        runs,
        ("none", *KV_SOURCES),
        lambda run: (_ttft_ms(run), slowest_tier(run.finished) + 1),
    )


def tpot(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return the TPOT distribution of each hit class."""
    definition = (
        "TPOT: (last token − first token) ÷ (output tokens − 1); requests of one output token have none. "
        "Classes as for TTFT."
    )

    def split(run: FinishedRun) -> tuple[NDArray[Any], NDArray[Any]]:
        rows = run.finished
        gaps = rows["output_tokens"] - 1
        tpot_ms = (rows["finish_ns"] - rows["first_token_ns"]) / np.maximum(gaps, 1) / 1e6
        return tpot_ms, np.where(gaps > 0, hit_class(rows, run.block_size_tokens), -1)

    heading = Heading("tpot", "Time per output token, by hit", definition)
    return draw_split(heading, runs, HIT_CLASSES, split)
