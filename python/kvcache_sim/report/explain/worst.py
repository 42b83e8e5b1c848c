"""The requests that waited longest for their first token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.columns import OUTCOMES, STATUSES
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.picture import Table, Value
from kvcache_sim.report.pictures.waterfall import PARTS

#: Arrival times in ns: [from, to).
Window = tuple[int, int]

_HEADINGS = (
    "request",
    "arrives, s",
    "TTFT, ms",
    "times the median",
    "most of it",
    "ms of it",
    "prompt tokens",
    "cached",
    "outcome",
    "status",
    "machine",
    "preemptions",
)


def arriving(run: FinishedRun, window: Window | None) -> NDArray[np.bool_]:
    """Return a mask of the finished requests that arrive in a window; None is the whole run.

    Raises ``UsageError`` where none does.
    """
    arrival = run.finished["arrival_ns"]
    low, high = window or (-(2**62), 2**62)
    inside: NDArray[np.bool_] = (arrival >= low) & (arrival < high)
    if not inside.any():
        got = "no finished request" if window is None else f"{low / 1e9:g} s to {high / 1e9:g} s"
        last_s = float(arrival.max()) / 1e9 if len(arrival) else 0.0
        hint = f"the last arrival is at {last_s:,.3f} s"
        raise UsageError("no finished request arrives then", where="--between", got=got, hint=hint)
    return inside


def ttft_ns(rows: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Return each row's time from arrival to first token."""
    ttft: NDArray[np.int64] = rows["first_token_ns"] - rows["arrival_ns"]
    return ttft


def outcome_words(outcome: int) -> str:
    """Return an outcome of a look-up as words: ``CONVERSATIONAL_HIT`` is "conversational hit"."""
    return OUTCOMES[outcome].replace("_", " ").lower()


def worst_rows(run: FinishedRun, most: int, window: Window | None = None) -> list[tuple[Value, ...]]:
    """Return the ``most`` requests of the longest TTFT that arrive in a window, the longest first.

    The columns are those of ``worst_table`` after the run. Raises ``UsageError`` where none arrives then.
    """
    rows = run.finished
    ttft = ttft_ns(rows)
    chosen = np.flatnonzero(arriving(run, window))
    chosen = chosen[np.lexsort((rows["request"][chosen], -ttft[chosen]))][:most]
    median = float(np.median(ttft))
    usual = {part: float(np.median(rows[column])) for part, column in PARTS.items()}
    found: list[tuple[Value, ...]] = []
    for row in chosen.tolist():
        part = max(PARTS, key=lambda part: float(rows[PARTS[part]][row]) - usual[part])
        found.append(
            (
                int(rows["request"][row]),
                round(float(rows["arrival_ns"][row]) / 1e9, 3),
                round(float(ttft[row]) / 1e6, 3),
                round(float(ttft[row]) / median, 1) if median else None,
                part,
                round(float(rows[PARTS[part]][row]) / 1e6, 3),
                int(rows["input_tokens"][row]),
                int(rows["cached_prefix_length_used"][row]),
                outcome_words(int(rows["outcome"][row])),
                STATUSES[int(rows["status"][row])],
                int(rows["machine"][row]),
                int(rows["preemptions"][row]),
            )
        )
    return found


def worst_table(runs: Sequence[FinishedRun], most: int, window: Window | None = None) -> Table:
    """Return the worst requests of each run; a run without a finished request has no row."""
    rows = [
        (run.label, *row)
        for run in runs
        if len(run.finished["request"])
        for row in worst_rows(run, most, window)
    ]
    return Table(("run", *_HEADINGS), tuple(rows))
