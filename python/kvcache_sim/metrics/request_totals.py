"""Totals of a run's request rows, added in batches, of all or of chosen rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.metrics.columns import FETCH_PARTS, STATUSES, TTFT_PARTS
from kvcache_sim.metrics.durations import Durations
from kvcache_sim.metrics.handover_summary import HandoverTotals
from kvcache_sim.metrics.jobs import JobTotals
from kvcache_sim.metrics.machine_loads import added
from kvcache_sim.metrics.parts import Part, arrays_of
from kvcache_sim.metrics.percentiles import Distribution
from kvcache_sim.metrics.prefix_cache import PrefixCacheTotals
from kvcache_sim.metrics.session_survival import SessionSurvival
from kvcache_sim.metrics.slo import AttainmentTotals, Objectives


class ChosenRows(Mapping[str, NDArray[Any]]):
    """The rows for which ``chosen`` is true; each access copies a column, unless all rows are chosen.

    A copy of all columns would hold a run's rows twice while they are summarized.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], chosen: NDArray[np.bool_]) -> None:
        self._columns = columns
        self._chosen = None if bool(chosen.all()) else chosen

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column of the chosen rows."""
        column = self._columns[name]
        return column if self._chosen is None else column[self._chosen]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the columns."""
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self._columns)


_FINISHED, _REJECTED = STATUSES.index("finished"), STATUSES.index("rejected")
_FAILED, _TURNED_AWAY = STATUSES.index("failed"), STATUSES.index("turned_away")


def beyond_context(rows: Mapping[str, NDArray[Any]], contexts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the rows rejected since their prompts leave no token for an answer.

    No number of machines serves them, so objectives do not judge them.

    Args:
        rows: Columns of ``requests``.
        contexts: By machine, the most tokens of a prompt and its answer.
    """
    beyond: NDArray[np.bool_] = (rows["status"] == _REJECTED) & (
        rows["input_tokens"] >= contexts[rows["machine"]]
    )
    return beyond


class RequestTotals:
    """Counts, sums and latencies of requests; rows are added in file order, in batches.

    Hits are counted over first admissions; latencies over finished requests. Cost: that of ``Durations`` and
    ``SessionSurvival``; no rows are kept.
    """

    def __init__(
        self,
        block_size_tokens: int,
        objectives: Objectives | None = None,
        jobs: NDArray[np.int32] | None = None,
        reusable_tokens: NDArray[np.int64] | None = None,
        contexts: NDArray[np.int64] | None = None,
    ) -> None:
        self._block_size_tokens = block_size_tokens
        #: By request, the prompt tokens that an unbounded cache would serve; None: unknown.
        self._reusable_tokens = reusable_tokens
        #: By machine, most tokens of a prompt and its answer; None: no machine has a limit.
        self._contexts = contexts
        self.arrived = self.finished = self.rejected = self.failed = self.turned_away = 0
        #: Rejected requests whose prompts leave no token for an answer; answers that end at the context.
        self.rejected_beyond_context = self.answers_at_context = 0
        #: Sums over finished requests; preemptions over all requests.
        self.sums: Counter[str] = Counter()
        self.hit_tokens: Counter[str] = Counter()
        self.loads = np.zeros(0, np.int64)
        self.prefix_cache = PrefixCacheTotals(block_size_tokens)
        self.sessions = SessionSurvival(block_size_tokens)
        self.handovers = HandoverTotals()
        #: Requests within their objectives, if there are any.
        self.attainment = AttainmentTotals(objectives) if objectives is not None else None
        #: Completion times of agents and sessions, if requests wait for others; ``jobs``: by request.
        self.jobs = JobTotals(jobs) if jobs is not None else None
        self._first_arrival_ns: int | None = None
        self._last_finish_ns = 0
        #: Sums of the rows' hit shares.
        self._hit_shares: list[float] = []
        self._ttft, self._tpot, self._e2e, self._queue, self._wait = (Durations() for _ in range(5))
        self._ttft_parts = {part: Durations() for part in TTFT_PARTS}
        self._fetch_parts = {part: Durations() for part in FETCH_PARTS}

    def add(self, part: Part) -> None:
        """Add the columns of some rows of ``requests``."""
        rows = arrays_of(part)
        finished = rows["status"] == _FINISHED
        if not len(finished):
            return
        self.arrived += len(finished)
        self.sums["preemptions"] += int(rows["preemptions"].sum())
        first = int(rows["arrival_ns"].min())
        known = self._first_arrival_ns
        self._first_arrival_ns = first if known is None else min(first, known)
        beyond = self._beyond_context(rows)
        if self.attainment is not None:
            kept = {name: values[~beyond] for name, values in rows.items()} if beyond.any() else rows
            self.attainment.add(kept)
        if not finished.all():
            self.rejected += int((rows["status"] == _REJECTED).sum())
            self.failed += int((rows["status"] == _FAILED).sum())
            self.turned_away += int((rows["status"] == _TURNED_AWAY).sum())
        done = ChosenRows(rows, finished)
        if finished.any():
            self._add_finished(done, int(finished.sum()))

    def _add_finished(self, done: Mapping[str, NDArray[Any]], count: int) -> None:
        inputs, cached = done["input_tokens"], done["cached_prefix_length_used"]
        arrival_ns, first_token_ns, finish_ns = (
            done[name] for name in ("arrival_ns", "first_token_ns", "finish_ns")
        )
        self.finished += count
        self._last_finish_ns = max(self._last_finish_ns, int(finish_ns.max()))
        self.sums.update(
            input=int(inputs.sum()),
            output=int(done["output_tokens"].sum()),
            cached=int(cached.sum()),
            prefilled=int(done["num_tokens_actually_prefilled"].sum()),
            recomputed=int(done["recomputed_tokens"].sum()),
            block_refs=int((inputs // self._block_size_tokens).sum()),
            hit_blocks=int((cached // self._block_size_tokens).sum()),
        )
        if self._reusable_tokens is not None:
            # what the run served was reusable: it may have admitted requests in another order
            reusable = np.maximum(self._reusable_tokens[done["request"]], cached)
            self.sums["reusable"] += int(reusable.sum())
        self.hit_tokens.update({source: int(done[f"cached_{source}_tokens"].sum()) for source in KV_SOURCES})
        self._hit_shares.append(math.fsum((cached / inputs).tolist()))
        self.loads = added(self.loads, done["machine"])
        self._ttft.add(first_token_ns - arrival_ns)
        self._tpot.add(_tpot_ns(done["output_tokens"], finish_ns - first_token_ns))
        self._e2e.add(finish_ns - arrival_ns)
        self._queue.add(done["queue_ns"])
        self._wait.add(done["queue_ns"] + done["handover_room_ns"])
        for part, durations in (*self._ttft_parts.items(), *self._fetch_parts.items()):
            durations.add(done[f"{part}_ns"])
        self.prefix_cache.add(done)
        self.sessions.add(done)
        self.handovers.add(done)
        if self.jobs is not None:
            self.jobs.add_finished(done)

    def _beyond_context(self, rows: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Count what the context rejects and ends; return a mask of the rejected rows."""
        if self._contexts is None:
            return np.zeros(len(rows["status"]), np.bool_)
        beyond = beyond_context(rows, self._contexts)
        self.rejected_beyond_context += int(beyond.sum())
        lengths = rows["input_tokens"] + rows["output_tokens"]
        ends = (rows["status"] == _FINISHED) & (lengths == self._contexts[rows["machine"]])
        self.answers_at_context += int(ends.sum())
        return beyond

    @property
    def aborted(self) -> int:
        """Requests that their clients gave up before the last token."""
        return self.arrived - self.finished - self.rejected - self.failed - self.turned_away

    @property
    def request_hit_rate(self) -> float | None:
        """Mean over finished requests of the share of the prompt that was cached."""
        return math.fsum(self._hit_shares) / self.finished if self.finished else None

    @property
    def upper_bound_token_hit_rate(self) -> float | None:
        """Share of the prompt tokens that an unbounded cache would serve; None: unknown."""
        known = self._reusable_tokens is not None and self.sums["input"]
        return self.sums["reusable"] / self.sums["input"] if known else None

    @property
    def makespan_ns(self) -> int:
        """Time from the first arrival to the last finished token."""
        if not self.finished or self._first_arrival_ns is None:
            return 0
        return self._last_finish_ns - self._first_arrival_ns

    def wait(self) -> Distribution:
        """Return the statistics of waiting for admission, for a step, or for a hand-over's blocks, in ms."""
        return self._wait.describe()

    def latencies(self) -> dict[str, Any]:
        """Return the statistics of the requests' latencies, in ms."""

        def parts(durations: Mapping[str, Durations]) -> dict[str, Distribution]:
            return {name: duration.describe() for name, duration in durations.items()}

        return {
            "ttft": self._ttft.describe(),
            "tpot": self._tpot.describe(),
            "e2e": self._e2e.describe(),
            "queue": self._queue.describe(),
            "ttft_parts": parts(self._ttft_parts),
            "fetch_parts": parts(self._fetch_parts),
        }


def _tpot_ns(output_tokens: NDArray[np.int64], spans_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the mean time per token after the first, of requests with two output tokens or more."""
    later = output_tokens - 1
    several = later > 0
    mean: NDArray[np.int64] = np.rint(spans_ns[several] / later[several]).astype(np.int64)
    return mean
