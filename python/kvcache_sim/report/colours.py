"""Colors of pictures: a quantity has the same color in all of them.

No two parts of a picture have similar colors: ``tests/report/test_report_charts.py`` measures the distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from kvcache_sim.base.tier_table import ROWS
from kvcache_sim.base.tiers import KV_SOURCES, REMOTE
from kvcache_sim.metrics.ttft_parts import ROWS as TTFT_ROWS

#: Series of a picture that are not drawn by name.
OTHER = "other"

_KV_SOURCES = {row.name: row.colour for row in ROWS} | {KV_SOURCES[REMOTE]: "#a05fb4"}
#: Colors by meaning, distinguishable for color-blind readers on light and on dark backgrounds.
COLOURS: dict[str, str] = {
    **_KV_SOURCES,
    OTHER: "#aeb6be",
    "none": "#6b7785",
    "full hit": "#1f9e89",
    "partial hit": "#d9a200",
    "miss": "#d1495b",
    **{part.words: part.colour for part in TTFT_ROWS if part.colour is not None},
    "fetch write-back": "#d9a200",
    **{f"fetch {source}": colour for source, colour in _KV_SOURCES.items()},
    "running": "#1f9e89",
    "loading": "#3b82c4",
    "held": "#d1495b",
    "cached": "#1f9e89",
    "in flight": "#d9a200",
    "free": "#aeb6be",
    "shorter": "#4b4fa8",
    "never seen": "#6b7785",
    "diverged": "#3ec9d6",
    "elsewhere": "#d9a200",
    "not admitted": "#7fbf4d",
    "not ready": "#e39ac0",
    "evicted": "#d1495b",
    "window moved on": "#8020e0",
    "no checkpoint": "#5c5c12",
    "partial block": "#c0006f",
    "not loaded": "#0f7a1f",
    "lost": "#d1495b",
    "lru": "#3b82c4",
    "optimum": "#a05fb4",
    "belady": "#a05fb4",
    "upper bound": "#6b7785",
    "prompts alone": "#1f9e89",
    "knee": "#d9a200",
    "this run": "#d1495b",
    "on the front": "#d1495b",
    "front": "#d1495b",
    "best": "#d1495b",
}
_SPARE = ("#3b82c4", "#d1495b", "#1f9e89", "#d9a200", "#a05fb4", "#b5651d", "#4b4fa8", "#7fbf4d")


def colours_of(names: Sequence[str]) -> list[str]:
    """Return each name's color: its own if it has one, else a color that no other name here has."""
    taken = {COLOURS[name] for name in names if name in COLOURS}
    spare = cycle([colour for colour in _SPARE if colour not in taken] or list(_SPARE))
    return [COLOURS.get(name) or next(spare) for name in names]


def colour_scale(names: Sequence[str]) -> Any:
    """Return an Altair scale of ``colours_of``."""
    import altair as alt

    return alt.Scale(domain=list(names), range=colours_of(names))
