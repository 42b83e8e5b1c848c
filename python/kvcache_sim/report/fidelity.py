"""A finished run beside the real requests it imitates: the error of every latency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import STATUSES
from kvcache_sim.metrics.run import ColumnData
from kvcache_sim.report.request_log import RequestLog


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
    """All statistics, and the mean absolute error a request (per cent) where both have the same requests."""

    latencies: list[LatencyError]
    #: Metric → per-request MAPE in %; empty when the numbers of requests differ.
    per_request_mape: dict[str, float]
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

    Requests are paired by position: the log must be in the order of the trace.
    """
    simulated = run_latencies(requests)
    real = {"ttft": log.ttft_s, "tpot": log.tpot_s, "e2e": log.e2e_s}
    rows: list[LatencyError] = []
    paired: dict[str, float] = {}
    for metric, measured in real.items():
        ours = simulated[metric]
        for statistic in ("mean", "p50", "p90", "p99"):
            a, b = _statistic(measured, statistic), _statistic(ours, statistic)
            rows.append(LatencyError(metric, statistic, a, b, 100 * (b / a - 1) if a else float("nan")))
        if len(measured) == len(ours):
            valid = (measured > 0) & ~np.isnan(ours)
            if valid.any():
                error = np.abs(ours[valid] / measured[valid] - 1)
                paired[metric] = 100 * float(error.mean())
    return Fidelity(rows, paired, len(log.e2e_s), len(simulated["e2e"]))


def _statistic(values: NDArray[np.float64], name: str) -> float:
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan")
    return float(values.mean() if name == "mean" else np.percentile(values, float(name[1:])))
