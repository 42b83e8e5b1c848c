"""Runs of iterations of which only the total time is measured, compilation, and waits.

With asynchronous scheduling a step's tokens are observed after the next step has been launched. If that next
step has a prompt's chunk, whose launch takes long, the earlier step appears long and the chunk's own step
short. The total time of these steps is right. So a step and the chunks that follow it directly form a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.extras.calibrate.rows import IterationRows

#: Runs are cut after this many steps: of a hundred consecutive chunks a single sum has too little
#: information, and the time that the cut assigns to the wrong side is small compared with eight steps.
MOST_STEPS = 8

#: A file's steps are observed late if the median decode step before a chunk of more than this many tokens (no
#: CUDA graph) takes more than this multiple of the median of other decode steps, or if more than this share
#: of such chunks appears to take less than the median decode step, which computes less.
LAUNCHED_TOKENS = 512
LATE_RATIO = 2.0
_SHORT_SHARE = 0.1

#: The column of an asynchronous engine's file: the observed time, before any correction.
SEEN_COLUMN = "seen_ms"


@dataclass(frozen=True, slots=True)
class Runs:
    """Rows in order, cut into runs: the first row of each run, and the number of rows."""

    begins: NDArray[np.intp]
    rows: int

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.begins)

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum over each run of values, or columns of values, by row."""
        if len(self) == self.rows:
            return values
        return np.asarray(np.add.reduceat(values, self.begins, axis=0), np.float64)

    def rowwise(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values by run at each of the run's rows."""
        return values[self.number]

    def mask(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the mask of the rows of the selected runs."""
        return chosen[self.number]

    def take(self, chosen: NDArray[np.bool_]) -> Runs:
        """Return the selected runs, of the rows that ``mask`` leaves."""
        lengths = np.diff(self.begins, append=self.rows)[chosen]
        return Runs(np.cumsum(lengths) - lengths, int(lengths.sum()))

    def totals(self, rows: IterationRows) -> IterationRows:
        """Return each run as one row: sums of tokens, sequences and times, which determine its phase."""
        degree = rows.tensor_parallel[self.begins]
        names = ("prefill_tokens", "prefill_requests", "past_tokens", "decode_sequences", "decode_kv_tokens")
        sums = {name: self.sums(getattr(rows, name)) for name in (*names, "decode_max_kv_tokens", "iter_ms")}
        return IterationRows(tensor_parallel=degree, **sums)

    @property
    def number(self) -> NDArray[np.intp]:
        """The run of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.begins, append=self.rows))


def single_steps(rows: IterationRows) -> Runs:
    """Return a run for each row: each step's own time is known."""
    return Runs(np.arange(len(rows)), len(rows))


def runs_of(rows: IterationRows) -> Runs:
    """Return the runs of rows in the engine's step order: each chunk joins the row before it."""
    begins, steps = [], 0
    for position, chunk in enumerate((rows.prefill_tokens > 0).tolist()):
        if chunk and 0 < steps < MOST_STEPS:
            steps += 1
        else:
            begins.append(position)
            steps = 1
    return Runs(np.array(begins, np.intp), len(rows))


def seen_late(rows: IterationRows) -> bool:
    """Return True if rows in the engine's order assign a chunk's launch to the decode step before it."""
    chunk = rows.prefill_tokens > 0
    launched = chunk & (rows.prefill_tokens + rows.decode_sequences > LAUNCHED_TOKENS)
    before, followed = np.append(launched[1:], False) & ~chunk, np.append(chunk[1:], False)
    others = ~chunk & ~followed
    if launched.any() and not chunk.all():
        short = rows.iter_ms[launched] < np.median(rows.iter_ms[~chunk])
        if short.mean() > _SHORT_SHARE:
            return True
    if not before.any() or not others.any():
        return False
    return bool(np.median(rows.iter_ms[before]) > LATE_RATIO * np.median(rows.iter_ms[others]))


#: An iteration is a compilation if it takes this multiple of the usual time, and this many ms more.
COMPILES_TIMES = 3.0
COMPILES_EXTRA_MS = 200.0
#: Usual time: the median of this many iterations, itself and the nearest by tokens.
_LIKE_ROWS = 31


def usual_ms(rows: IterationRows) -> NDArray[np.float64]:
    """Return for each row the median time of the 31 most similar iterations of the file.

    Similar iterations both have a prefill chunk or both have none; the nearest are adjacent when sorted by
    tokens, then by KV read by decodes, then by KV read by chunks.
    """
    usual = np.empty(len(rows))
    chunked = rows.prefill_tokens > 0
    for mask in (chunked, ~chunked):
        chosen = np.flatnonzero(mask)
        tokens = (rows.prefill_tokens + rows.decode_sequences)[chosen]
        chosen = chosen[np.lexsort((rows.past_tokens[chosen], rows.decode_kv_tokens[chosen], tokens))]
        width = min(_LIKE_ROWS, len(chosen))
        if width:
            windows = np.lib.stride_tricks.sliding_window_view(rows.iter_ms[chosen], width)
            first = np.clip(np.arange(len(chosen)) - width // 2, 0, len(windows) - 1)
            usual[chosen] = np.median(windows, axis=1)[first]
    return usual


def compiles(rows: IterationRows) -> NDArray[np.bool_]:
    """Return the mask of compilation: more than three times the usual time, and 200 ms above it.

    The longest real step of the shipped files takes 0.2 s; a first use takes 0.2 to 5 s. A rank that waits
    for another rank's prefill is not marked: it takes long, but not as long.
    """
    usual = usual_ms(rows)
    longest = np.maximum(COMPILES_TIMES * usual, usual + COMPILES_EXTRA_MS)
    return np.asarray(rows.iter_ms > longest, np.bool_)


def waits(rows: IterationRows) -> NDArray[np.bool_]:
    """Return the mask of pure decode steps of more than three times the usual time that do not compile.

    Their time includes other work. A rank of a data-parallel group waits for the prefill of another rank, or,
    on one GPU with asynchronous scheduling, the launch of the next step is assigned to this step.
    """
    long = np.asarray(rows.iter_ms > COMPILES_TIMES * usual_ms(rows), np.bool_)
    return np.asarray((rows.prefill_tokens == 0) & long & ~compiles(rows), np.bool_)
