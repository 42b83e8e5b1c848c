"""TTFT by the slowest tier read from."""

from __future__ import annotations

from collections.abc import Sequence

from kvcache_sim.report.distributions import slowest_tier
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture
from kvcache_sim.report.pictures.split_distribution import draw_split
from kvcache_sim.tiers import PLACES

_DEFINITION = (
    "TTFT: first token − arrival. A request counts under the slowest tier that served part of its prompt "
    f"({', '.join(PLACES)}), or under none."
)


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return the TTFT distribution of each tier."""
    return draw_split(
        ("ttft-by-tier", "Time to first token, by tier", _DEFINITION),
        runs,
        ("none", *PLACES),
        lambda run: (
            (run.finished["first_token_ns"] - run.finished["arrival_ns"]) / 1e6,
            slowest_tier(run.finished) + 1,
        ),
    )
