"""Each finished request's numbers in order of arrival, and the requests that pair two runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.report.finished import FinishedRun

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Samples:
    """Per-request numbers of one run, one entry a request that finished in every run compared."""

    #: Times in ms: ``ttft``, ``tpot`` (NaN where an answer is one token), ``e2e``, ``queue``; ``cached`` and
    #: ``input`` and ``output`` in tokens; ``gap_s``: time since the last token of the request that finished
    #: before; ``within_slo`` (1, 0, or -1) where the scenario has objectives.
    columns: dict[str, Column]

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.columns["ttft"])

    def chosen(self, rows: NDArray[np.int64]) -> Samples:
        """Return the samples of some rows, repeats allowed."""
        return Samples({name: column[rows] for name, column in self.columns.items()})


@dataclass(frozen=True, slots=True)
class Statistic:
    """A number compared: its name in text, its unit (``share``, ``ms``, ``1/s``), its value over samples."""

    metric: str
    words: str
    unit: str
    value: Callable[[Samples], float]
    more_is_better: bool = False

    @property
    def is_share(self) -> bool:
        """Return True if the number is a share, whose change is a difference."""
        return self.unit == "share"

    @property
    def is_latency(self) -> bool:
        """Return True if the number says how long requests take."""
        return self.unit == "ms" or self.metric == _ATTAINMENT.metric


def _percentile(column: str, share: float) -> Callable[[Samples], float]:
    return lambda samples: float(np.percentile(samples.columns[column], share))


def _mean(column: str) -> Callable[[Samples], float]:
    def mean(samples: Samples) -> float:
        values = samples.columns[column]
        present = values[~np.isnan(values)]
        return float(present.mean()) if len(present) else 0.0

    return mean


def _hit_rate(samples: Samples) -> float:
    return float(samples.columns["cached"].sum() / samples.columns["input"].sum())


def _attainment(samples: Samples) -> float:
    within = samples.columns["within_slo"]
    return float((within == 1).sum() / max((within >= 0).sum(), 1))


def _rate(samples: Samples) -> float:
    return float(samples.columns["output"].sum() / max(samples.columns["gap_s"].sum(), 1e-9))


RATE = "throughput.output_tokens_per_s"
#: The numbers compared, in printed order.
STATISTICS: tuple[Statistic, ...] = (
    Statistic("latency.ttft.p99", "TTFT p99", "ms", _percentile("ttft", 99)),
    Statistic("latency.ttft.p50", "TTFT p50", "ms", _percentile("ttft", 50)),
    Statistic("latency.ttft.avg", "mean TTFT", "ms", _mean("ttft")),
    Statistic("latency.tpot.avg", "mean TPOT", "ms", _mean("tpot")),
    Statistic("latency.e2e.avg", "mean E2E", "ms", _mean("e2e")),
    Statistic("latency.queue.avg", "mean queue time", "ms", _mean("queue")),
    Statistic(RATE, "output rate", "1/s", _rate, more_is_better=True),
    Statistic("cache.token_hit_rate", "token hit rate", "share", _hit_rate, more_is_better=True),
)
#: Compared too where both runs have objectives.
_ATTAINMENT = Statistic("slo.attainment", "SLO attainment", "share", _attainment, more_is_better=True)


def statistics_of(*samples: Samples) -> tuple[Statistic, ...]:
    """Return the statistics in which runs with these samples are compared."""
    judged = all("within_slo" in one_run.columns for one_run in samples)
    return (_ATTAINMENT, *STATISTICS) if judged else STATISTICS


def samples_of(run: FinishedRun, requests: NDArray[Any] | None = None) -> Samples:
    """Return a run's samples in order of arrival, of all finished requests or of those named."""
    rows = run.finished
    if requests is not None:
        chosen = np.isin(rows["request"], requests)
        rows = {name: column[chosen] for name, column in rows.items()}
    order = np.lexsort((rows["request"], rows["arrival_ns"]))
    later = rows["output_tokens"] - 1
    spans = rows["finish_ns"] - rows["first_token_ns"]
    per_token = np.rint(spans / np.maximum(later, 1))  # whole ns, as in the summary
    columns = {
        "ttft": (rows["first_token_ns"] - rows["arrival_ns"]) / 1e6,
        "tpot": np.where(later > 0, per_token, np.nan) / 1e6,
        "e2e": (rows["finish_ns"] - rows["arrival_ns"]) / 1e6,
        "queue": rows["queue_ns"] / 1e6,
        "cached": rows["cached_prefix_length_used"].astype(float),
        "input": rows["input_tokens"].astype(float),
        "output": rows["output_tokens"].astype(float),
        "gap_s": _gaps_ns(rows) / 1e9,
    }
    if "within_slo" in rows:
        columns["within_slo"] = rows["within_slo"].astype(float)
    return Samples({name: column[order] for name, column in columns.items()})


def _gaps_ns(rows: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Return the time to each request's end from the end before it, or from the first arrival."""
    finish_ns: NDArray[np.int64] = rows["finish_ns"].astype(np.int64)
    order = np.argsort(finish_ns, kind="stable")
    gaps = np.zeros(len(order), np.int64)
    if len(order):
        gaps[order] = np.diff(finish_ns[order], prepend=int(rows["arrival_ns"].min()))
    return gaps


def common_requests(first: FinishedRun, second: FinishedRun) -> NDArray[Any] | None:
    """Return the requests that finished in both runs, or None where the runs did not serve the same trace.

    The same trace: equally many requests with equal prompts and answers.
    """
    a, b = first.requests, second.requests
    for name in ("request", "input_tokens", "output_tokens"):
        if not np.array_equal(a[name], b[name]):
            return None
    both: NDArray[Any] = a["request"][(a["status"] == 0) & (b["status"] == 0)]
    return both
