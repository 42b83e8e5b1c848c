"""Assign GPU time to iterations of an engine that launches the next step before it reads this step's tokens.

With asynchronous scheduling a step's tokens are seen once the GPU has computed them and the host has launched
the step after. Launching a step with a prompt's chunk takes 10 to 80 ms (it is not one captured graph), so
the decode step before it seems long and the chunk's step short. The excess of a decode step over similar
steps that no chunk follows belongs to the chunk's step. Sums do not change. Consecutive chunk steps cannot be
separated by this rule.
"""

from __future__ import annotations

from collections import deque
from statistics import median

#: Number of decode steps of the segment that a step is compared with, and number of the most similar that
#: make the median.
_REMEMBERED = 400
_ALIKE = 5
#: Only a larger excess is moved.
_LEAST_MS = 0.02


def settle(rows: list[dict[str, str]]) -> list[float]:
    """Return the settled times in ms of the rows of one segment, in order, with their ``seen_ms``."""
    times = [float(row["seen_ms"]) for row in rows]
    plain: deque[tuple[int, int, float]] = deque(maxlen=_REMEMBERED)
    for index, row in enumerate(rows):
        if int(row["prefill_tokens"]):
            continue
        sequences, kv = int(row["decode_requests"]), int(row["decode_kv_tokens"])
        if not _launches_a_chunk(rows, index):
            plain.append((sequences, kv, times[index]))
            continue
        if not plain:
            continue
        alike = sorted(plain, key=lambda one: abs(one[0] - sequences) / sequences + abs(one[1] - kv) / kv)
        more = times[index] - median(ms for _, _, ms in alike[:_ALIKE])
        if more > _LEAST_MS:
            times[index] -= more
            times[index + 1] += more
    return times


def _launches_a_chunk(rows: list[dict[str, str]], index: int) -> bool:
    """True if the next row has a chunk and follows at once."""
    if index + 1 == len(rows) or not int(rows[index + 1]["prefill_tokens"]):
        return False
    row, after = rows[index], rows[index + 1]
    return int(after["start_us"]) - int(row["start_us"]) <= float(row["seen_ms"]) * 1000 + 2
