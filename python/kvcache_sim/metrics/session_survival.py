"""Survival of a session's prefix during a pause, by the gap before its next turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.metrics.figure import Figure

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

#: Bounds of the gaps in seconds: up to 1 s, then doubling to about four and a half hours, then longer.
GAP_BOUNDS_S = (0.0, *(float(2**k) for k in range(15)))


class SessionSurvival:
    """The survival curve: by the gap between turns, the share of the prefix still found.

    A gap lasts from the last token of a turn to the arrival of the session's next turn. The turn's prompt and
    answer in whole blocks, without the last token, could survive, as far as the next prompt may hit. Rows are
    added in batches in file order; only the last turn of each session is kept. Cost: 24 bytes per session.
    """

    def __init__(self, block_size_tokens: int) -> None:
        self._block_size_tokens = block_size_tokens
        #: By gap: turns, turns that found all and some; tokens that could survive, tokens found by source.
        self._sums = np.zeros((len(GAP_BOUNDS_S), 4 + len(KV_SOURCES)), np.int64)
        #: By session its last turn: number (-1: none yet), last token, and tokens of prompt and answer.
        self._last = np.zeros((0, 3), np.int64)

    def add(self, admitted: Mapping[str, NDArray[Any]]) -> None:
        """Add the columns of some admitted requests."""
        session, turn = admitted["session"], admitted["turn"]
        if not len(session) or session.max() < 0:
            return
        order = np.lexsort((turn, session))
        order = order[session[order] >= 0]
        session, turn = session[order], turn[order]
        tokens = admitted["input_tokens"] + admitted["output_tokens"]
        turns = np.stack([turn, admitted["finish_ns"][order], tokens[order]], axis=1).astype(np.int64)
        self._grow(int(session[-1]) + 1)
        first = np.concatenate([[True], session[1:] != session[:-1]])
        before = np.concatenate([turns[:1], turns[:-1]])
        before[first] = self._last[session[first]]
        self._last[session] = turns  # the last one of each stays
        follows = (before[:, 0] >= 0) & (turn == before[:, 0] + 1)
        self._count(admitted, order[follows], before[follows])

    def _grow(self, sessions: int) -> None:
        known = len(self._last)
        if sessions > known:
            last = np.full((max(sessions, 2 * known), 3), -1, np.int64)
            last[:known] = self._last
            self._last = last

    def _count(
        self, admitted: Mapping[str, NDArray[Any]], after: NDArray[np.int64], before: NDArray[np.int64]
    ) -> None:
        gap_ns = admitted["arrival_ns"][after] - before[:, 1]
        left = (before[:, 2] - 1) // self._block_size_tokens
        may_hit = (admitted["input_tokens"][after] - 1) // self._block_size_tokens
        could = np.minimum(left, may_hit) * self._block_size_tokens
        # In an open loop a turn may arrive before the last answer is finished: there is no pause.
        kept = (could > 0) & (gap_ns >= 0)
        gap_ns, could, after = gap_ns[kept], could[kept], after[kept]
        found = _found_by_tier(admitted, after, could)
        whole = found.sum(axis=0)
        bounds_ns = np.asarray(GAP_BOUNDS_S[1:]) * NS_PER_S
        gap = np.searchsorted(bounds_ns, gap_ns, side="right")
        sums = (np.ones_like(could), whole == could, (whole > 0) & (whole < could), could, *found)
        for column, values in enumerate(sums):
            np.add.at(self._sums[:, column], gap, values)

    def rows(self) -> list[dict[str, float | int | None]]:
        """Return a row for each range of gaps with a next turn.

        A row has ``gap_from_s``, ``gap_to_s`` (None: no bound), ``turns``, ``survived`` (share of turns
        that found all of it), ``partly`` (some of it), and the mean share of its tokens found by source;
        ``lost`` is the rest: the sources and ``lost`` sum to 1.
        """
        return [_row(gap, sums) for gap, sums in enumerate(self._sums.tolist()) if sums[0]]


def _found_by_tier(
    admitted: Mapping[str, NDArray[Any]], after: NDArray[np.int64], could: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the tokens found in each tier, without tokens beyond the session's own prefix."""
    remaining = could.copy()
    found = np.zeros((len(KV_SOURCES), len(after)), np.int64)
    for level, tier in enumerate(KV_SOURCES):
        found[level] = np.minimum(admitted[f"cached_{tier}_tokens"][after], remaining)
        remaining -= found[level]
    return found


def _row(gap: int, sums: list[int]) -> dict[str, float | int | None]:
    turns, survived, partly, could, *found = sums
    last = gap == len(GAP_BOUNDS_S) - 1
    row: dict[str, float | int | None] = {
        "gap_from_s": GAP_BOUNDS_S[gap],
        "gap_to_s": None if last else GAP_BOUNDS_S[gap + 1],
        "turns": turns,
        "survived": survived / turns,
        "partly": partly / turns,
    }
    row |= {tier: found[level] / could for level, tier in enumerate(KV_SOURCES)}
    row["lost"] = (could - sum(found)) / could
    return row
