"""TTFT by hit class."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.report.distributions import HIT_CLASSES, hit_class
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture
from kvcache_sim.report.pictures.split_distribution import draw_split

_DEFINITION = (
    "TTFT: first token − arrival. Full hit: every block that may hit was served from a tier (the last token "
    "is always computed); partial hit: some were; miss: none."
)


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return the TTFT distribution of each hit class."""
    return draw_split(
        ("ttft", "Time to first token, by hit", _DEFINITION),
        runs,
        HIT_CLASSES,
        lambda run: (
            (run.finished["first_token_ns"] - run.finished["arrival_ns"]) / 1e6,
            hit_class(run.finished, run.block_size_tokens),
        ),
    )
