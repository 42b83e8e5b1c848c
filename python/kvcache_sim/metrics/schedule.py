"""The schedule of an engine's own scheduler: its figures, and digests of all steps and requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec.structs import asdict

from kvcache_sim._core import Sha256
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.serving.schedule_log import ScheduleLog
from kvcache_sim.workload.trace import Trace

#: Number of lines that are shown in clear.
_FIRST = 20
#: Marker of a free block without a key.
_NO_KEY = (1 << 64) - 1

FIGURES = (
    Figure("schedule.steps", "", "steps of the engine that computed something"),
    Figure("schedule.scheduled_tokens", "tokens", "tokens that these steps computed"),
    Figure("schedule.preemptions", "", "running requests that were sent back to the queue"),
    Figure("schedule.readmissions", "", "admissions after a preemption"),
    Figure("schedule.hit_tokens_first", "tokens", "cached tokens of first admissions"),
    Figure("schedule.hit_tokens_readmitted", "tokens", "cached tokens of admissions after a preemption"),
    Figure("schedule.evictions", "blocks", "blocks that lost their key when they were taken"),
    Figure("schedule.end_ns", "ns", "when the last step ended"),
    Figure("schedule.max_running", "", "most requests that ran after a schedule"),
    Figure("schedule.max_waiting", "", "most requests that waited after a schedule"),
    Figure("schedule.zero_token_steps", "", "schedules that computed nothing; they are no steps"),
    Figure("schedule.requests_sha256", "", "of lines: request, first token ns, last, cached, preemptions"),
    Figure("schedule.steps_sha256", "", "of lines: start ns, prefill and decode tokens, running, waiting"),
    Figure("schedule.admissions_sha256", "", "of lines: step, request, cached tokens"),
    Figure(
        "schedule.final_free_queue_sha256", "", "of the keys of the free blocks at the end, front to back"
    ),
    Figure("schedule.free_at_end", "blocks", "free blocks at the end"),
    Figure("schedule.first_requests", "", "the first lines of requests"),
    Figure("schedule.first_steps", "", "the first lines of steps"),
    Figure("schedule.first_admissions", "", "the first lines of admissions"),
    Figure("schedule.by_machine.row.<figure>", "", "the same of each machine, where there are several"),
)


def schedule_figures(log: ScheduleLog, evictions: int) -> dict[str, Any]:
    """Return ``schedule`` of the summary: sums, SHA-256 of newline-terminated lines, first lines."""
    counts = asdict(log.counts)
    requests, steps = _lines(sorted(log.requests)), _lines(log.steps)
    admissions = _lines(log.admissions)
    return {
        "steps": len(steps),
        **counts,
        "evictions": evictions,
        "requests_sha256": _sha256(requests),
        "steps_sha256": _sha256(steps),
        "admissions_sha256": _sha256(admissions),
        "first_requests": requests[:_FIRST],
        "first_steps": steps[:_FIRST],
        "first_admissions": admissions[:_FIRST],
    }


def free_queue_figures(free_queue: list[int | None], trace: Trace, block_size_tokens: int) -> dict[str, Any]:
    """Return the figures of ``schedule`` for a pool of blocks: its free blocks at the end, in order."""
    from kvcache_sim import _core

    keys = np.array([_NO_KEY if key is None else key for key in free_queue], np.uint64)
    names = [str(name) for name in trace.id_names]
    queue = _core.key_lines(keys, trace.block_size // block_size_tokens, names)
    return {
        "final_free_queue_sha256": Sha256(queue.encode()).hexdigest(),
        "free_at_end": len(free_queue),
    }


def _lines(rows: Iterable[tuple[int, ...]]) -> list[str]:
    return [" ".join(map(str, row)) for row in rows]


def _sha256(lines: list[str]) -> str:
    return Sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
