"""Consistency of a schedule: steps do not overlap, tokens add up, and requests' times are ends of steps."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from kvcache_sim.metrics.run import Run
from kvcache_sim.model.step_time import StepBatch, StepTimeTable
from kvcache_sim.serving.settings import ReplicaSettings


def plain_table(scale: int = 1, overhead_ns: int = 0) -> StepTimeTable:
    """Return steps that take a time by their tokens, or by their sequences where all decode; no context, no grid."""
    base = scale * (1_000_000 + np.arange(4097, dtype=np.int64) * 20_000) + overhead_ns
    decode = scale * (5_000_000 + np.arange(513, dtype=np.int64) * 1_000) + overhead_ns
    base[0] = decode[0] = 0
    return StepTimeTable(base, decode)


def step_time(replica: ReplicaSettings) -> Callable[[int, int], int]:
    """Return the time of a step of ``plain_table`` on a replica, by its tokens of prompts and its decodes."""
    table, overhead = plain_table(), replica.step_overhead_ns

    def step(prefill: int, decodes: int) -> int:
        chunks = ((prefill, 0),) if prefill else ()
        plain = table.step(StepBatch(chunks, decodes, decodes, min(decodes, 1)))
        return plain + overhead if replica.async_scheduling == "none" else max(plain, overhead)

    return step


def check_books(
    run: Run, replicas: Sequence[Any], step: Callable[[int, int], int], async_scheduling: str
) -> None:
    """Check the schedules of a run's machines.

    ``step`` gives the time of a step by its tokens of prompts and its decodes.
    """
    for replica in replicas:
        done = (run.requests["machine"] == replica.machine) & (run.requests["finish_ns"] >= 0)
        names = ("request", "arrival_ns", "input_tokens", "output_tokens", "cached_prefix_length_used")
        columns = (run.requests[name][done].tolist() for name in (*names, "preemptions"))
        rows = {row[0]: row for row in zip(*columns, strict=True)}
        times = {
            request: (first, last)
            for request, first, last in zip(
                rows,
                run.requests["first_token_ns"][done].tolist(),
                run.requests["finish_ns"][done].tolist(),
                strict=True,
            )
        }
        _check_book(replica.schedule(), rows, times, step, async_scheduling)


def _check_book(
    log: Any, rows: Any, times: Any, step: Callable[[int, int], int], async_scheduling: str
) -> None:
    starts = [line[0] for line in log.steps]
    ends = [start + step(prefill, decodes) for start, prefill, decodes, *_ in log.steps]
    arrivals = {row[1] for row in rows.values()}
    for before, start in zip([0, *ends], starts, strict=False):
        # a step follows the one before at once, or what came while nothing ran
        assert start == before or (start > before and start in arrivals), (
            "one step at a time, and no idle time"
        )
    counts = log.counts
    assert counts.scheduled_tokens == sum(prefill + decodes for _, prefill, decodes, *_ in log.steps)
    assert counts.end_ns == max(ends, default=0)
    assert {row[0]: row[1:3] for row in log.requests} == times
    assert set().union(*times.values()) <= set(ends)
    firsts: dict[int, int] = {}
    for at, request, cached in log.admissions:
        assert rows[request][1] <= starts[at] < times[request][1]
        assert cached < rows[request][2] + rows[request][3]
        firsts.setdefault(request, cached)
    assert firsts == {request: row[4] for request, row in rows.items()}
    assert counts.hit_tokens_first == sum(firsts.values())
    again = len(log.admissions) - len(rows)
    assert counts.readmissions == again <= counts.preemptions == sum(row[5] for row in rows.values())
    if async_scheduling == "none":  # else a request may leave while its last token is computed
        assert again == counts.preemptions
    missed = sum(row[2] - row[4] for row in rows.values())
    later = sum(max(row[3], 1) - 1 for row in rows.values())
    computed = sum(line[1] for line in log.steps), sum(line[2] for line in log.steps)
    if not again and async_scheduling != "stop-token":
        assert computed == (missed, later), "every token is computed once"
    else:
        # blocks found at readmission need not be computed, whichever request computed them
        assert sum(computed) + counts.hit_tokens_readmitted >= missed + later - again
