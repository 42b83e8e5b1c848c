"""A finished run compared with the real requests it imitates: the error of every latency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.run import ColumnData
from kvcache_sim.report.request_log.read import Pairing, RequestLog


@dataclass(frozen=True, slots=True)
class LatencyError:
    """One latency: a statistic of the real requests and of the run (s), and the error in per cent."""

    metric: str
    statistic: str
    real_s: float
    simulated_s: float
    error_percent: float


@dataclass(frozen=True, slots=True)
class Fidelity:
    """All statistics, and the mean absolute error a request (%) over the requests that both finished."""

    latencies: list[LatencyError]
    #: Metric → per-request MAPE in %.
    per_request_mape: dict[str, float]
    #: Pairing of real with simulated requests, and the number of pairs.
    paired_by: Pairing
    paired_requests: int
    real_requests: int
    simulated_requests: int


def run_latencies(requests: dict[str, ColumnData]) -> dict[str, NDArray[np.float64]]:
    """Return TTFT, TPOT and E2E (s) of a run's finished requests in file order.

    TTFT = first token − arrival; E2E = last token − arrival; TPOT = (E2E − TTFT) / (output tokens − 1), NaN
    for a single token.
    """
    finished = np.asarray(requests["status"]) == STATUSES.index("finished")
    names = ("arrival_ns", "first_token_ns", "finish_ns", "output_tokens")
    arrival, first, last, output = (np.asarray(requests[name])[finished] for name in names)
    many = output > 1
    return {
        "ttft": (first - arrival) / 1e9,
        "tpot": np.where(many, (last - first) / 1e9 / np.where(many, output - 1, 1), np.nan),
        "e2e": (last - arrival) / 1e9,
    }


def compare(requests: dict[str, ColumnData], log: RequestLog) -> Fidelity:
    """Return the errors of mean, p50, p90 and p99 (linear interpolation) of TTFT, TPOT and E2E.

    Statistics are over all requests of a side. Requests are paired by their index in the trace, by the order
    in which they were started, or by position, as the log allows (``RequestLog.pairing``).
    """
    simulated = run_latencies(requests)
    ours, theirs = _paired(requests, log)
    rows: list[LatencyError] = []
    mape: dict[str, float] = {}
    for metric, measured in {"ttft": log.ttft_s, "tpot": log.tpot_s, "e2e": log.e2e_s}.items():
        for statistic in ("mean", "p50", "p90", "p99"):
            a, b = _statistic(measured, statistic), _statistic(simulated[metric], statistic)
            rows.append(LatencyError(metric, statistic, a, b, 100 * (b / a - 1) if a else float("nan")))
        real, found = measured[theirs], simulated[metric][ours]
        valid = (real > 0) & ~np.isnan(found)
        if valid.any():
            mape[metric] = 100 * float(np.abs(found[valid] / real[valid] - 1).mean())
    return Fidelity(rows, mape, log.pairing, len(ours), len(log.e2e_s), len(simulated["e2e"]))


def _paired(requests: dict[str, ColumnData], log: RequestLog) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of each request among the run's finished requests and in the log."""
    finished = np.asarray(requests["status"]) == STATUSES.index("finished")
    numbers = np.arange(len(finished))
    if log.pairing == "start time":
        by_arrival = np.argsort(np.asarray(requests["arrival_ns"]), kind="stable")
        numbers[by_arrival] = np.arange(len(finished))
    _, ours, theirs = np.intersect1d(numbers[finished], log.numbers, return_indices=True)
    return ours, theirs


def _statistic(values: NDArray[np.float64], name: str) -> float:
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan")
    return float(values.mean() if name == "mean" else np.percentile(values, float(name[1:])))
