"""TPOT by hit class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.report.distributions import HIT_CLASSES, hit_class
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import NothingToDraw, Picture
from kvcache_sim.report.pictures.split_distribution import draw_split

_DEFINITION = (
    "TPOT: (last token − first token) ÷ (output tokens − 1); requests of one output token have none. "
    "Classes as for TTFT."
)


def _tpot(run: FinishedRun) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = run.finished
    gaps = rows["output_tokens"] - 1
    tpot_ms = (rows["finish_ns"] - rows["first_token_ns"]) / np.maximum(gaps, 1) / 1e6
    return tpot_ms, np.where(gaps > 0, hit_class(rows, run.block_size_tokens), -1)


def draw(runs: Sequence[FinishedRun]) -> Picture | NothingToDraw:
    """Return the TPOT distribution of each hit class."""
    return draw_split(("tpot", "Time per output token, by hit", _DEFINITION), runs, HIT_CLASSES, _tpot)
