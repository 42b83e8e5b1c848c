"""Does the KV outlive the pause? How much of a session's prefix was left, by the gap before its next turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.figure import Figure
from kvcache_sim.tiers import PLACES
from kvcache_sim.units import NS_PER_S

FIGURES = (
    Figure("session_survival.<gap>.gap_from_s", "s", "least pause from a turn's last token to the next turn"),
    Figure("session_survival.<gap>.gap_to_s", "s", "the pause is shorter than this; null: no bound"),
    Figure("session_survival.<gap>.turns", "", "turns that came after such a pause"),
    Figure("session_survival.<gap>.survived", "share", "turns that found all whole blocks of the last one"),
    Figure("session_survival.<gap>.partly", "share", "turns that found some of them"),
    Figure(
        "session_survival.<gap>.<place>",
        "share",
        "by the gap between turns: share of its whole blocks still found, per tier",
    ),
    Figure("session_survival.<gap>.lost", "share", "share of them that was found nowhere"),
)

#: Bounds of the gaps in seconds: up to 1 s, then doubling to about four and a half hours, then all longer.
GAP_BOUNDS_S = (0.0, *(float(2**k) for k in range(15)))


def session_survival(
    admitted: Mapping[str, NDArray[Any]], block_size_tokens: int
) -> list[dict[str, float | int | None]]:
    """Return the survival curve: a row for each range of gaps in which a session came back.

    A gap runs from the last token of a turn to the arrival of the session's next one. What could survive is
    the turn's prompt and answer in whole blocks, the last token excepted, as far as the next prompt may hit.
    A row has ``gap_from_s``, ``gap_to_s`` (None: no bound), ``turns``, ``survived`` (share of turns that
    found all of it), ``partly`` (some of it), and the mean share of its tokens found per tier, with ``lost``
    the rest: the places and ``lost`` sum to 1. ``admitted`` are columns of admitted requests.
    """
    before, after = _neighbours(admitted)
    gap_ns = admitted["arrival_ns"][after] - admitted["finish_ns"][before]
    left = (admitted["input_tokens"][before] + admitted["output_tokens"][before] - 1) // block_size_tokens
    may_hit = (admitted["input_tokens"][after] - 1) // block_size_tokens
    could = np.minimum(left, may_hit) * block_size_tokens
    # In open loop a turn may come before the last answer is finished: there was no pause to outlive.
    kept = (could > 0) & (gap_ns >= 0)
    gap_ns, could, after = gap_ns[kept], could[kept], after[kept]
    found = _found_by_tier(admitted, after, could)
    bounds_ns = np.asarray(GAP_BOUNDS_S[1:]) * NS_PER_S
    place = np.searchsorted(bounds_ns, gap_ns, side="right")
    return [
        _row(k, could[place == k], found[:, place == k]) for k in np.flatnonzero(np.bincount(place)).tolist()
    ]


def _neighbours(admitted: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of each turn and of the next one of its session, where both were admitted."""
    order = np.lexsort((admitted["turn"], admitted["session"]))
    before, after = order[:-1], order[1:]
    session, turn = admitted["session"], admitted["turn"]
    next_of = (session[before] == session[after]) & (session[after] >= 0)
    next_of &= turn[after] == turn[before] + 1
    return before[next_of], after[next_of]


def _found_by_tier(
    admitted: Mapping[str, NDArray[Any]], after: NDArray[np.int64], could: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the tokens found in each tier; what other requests left beyond the session's own is cut off."""
    room = could.copy()
    found = np.zeros((len(PLACES), len(after)), np.int64)
    for level, tier in enumerate(PLACES):
        found[level] = np.minimum(admitted[f"cached_{tier}_tokens"][after], room)
        room -= found[level]
    return found


def _row(place: int, could: NDArray[np.int64], found: NDArray[np.int64]) -> dict[str, float | int | None]:
    total = int(could.sum())
    all_found = found.sum(axis=0)
    last = place == len(GAP_BOUNDS_S) - 1
    row: dict[str, float | int | None] = {
        "gap_from_s": GAP_BOUNDS_S[place],
        "gap_to_s": None if last else GAP_BOUNDS_S[place + 1],
        "turns": len(could),
        "survived": int((all_found == could).sum()) / len(could),
        "partly": int(((all_found > 0) & (all_found < could)).sum()) / len(could),
    }
    row |= {tier: int(found[level].sum()) / total for level, tier in enumerate(PLACES)}
    row["lost"] = (total - int(all_found.sum())) / total
    return row
