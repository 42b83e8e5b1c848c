"""The state ``saturated`` of a run, and the rate of requests that its machines would hold.

A run is saturated if demand exceeds service, or if waiting is more than half of TTFT and longer than a step,
at the mean and at the median, or in bursts: more than nine tenths at the mean alone. Service is measured by
the waits: it is the rate of one queue with equal
service times in which these arrivals wait as long on average as they did in the run (Lindley, The theory of
queues with a single server, 1952). Demand exceeds service if more requests than that arrive per second.
Where steps stay short, slots of the batch limit a run and not its compute: the queue has as many servers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.units import NS_PER_S, format_time_ms, significant
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.metrics.percentiles import Distribution

FIGURES = (
    Figure(
        "saturated",
        "",
        "true if demand exceeds service, or waiting is half of TTFT at mean and median or 90 % at the mean",
    ),
    Figure(
        "saturation.wait.<statistic>",
        "ms",
        "waiting for admission, for a step, or for free blocks of a hand-over",
    ),
    Figure(
        "saturation.arrived_per_s",
        "1/s",
        "requests per second that no machine rejected, first to last arrival; null if clients wait",
    ),
    Figure(
        "saturation.served_per_s",
        "1/s",
        "of one queue in which these arrivals wait as long; null without waits",
    ),
    Figure(
        "saturation.holds_per_s",
        "1/s",
        "highest rate that would not be saturated, estimated; null if not saturated",
    ),
    Figure("saturation.sentence", "", "the state in words; empty if not saturated"),
)

#: Share of TTFT above which waiting counts, and at the mean alone: of bursts.
_MOST, _NEARLY_ALL = 0.5, 0.9
#: Most arrivals of the queue; of more requests, every k-th stands for k.
_POINTS = 10_000
_HALVINGS = 40
#: Mean time between tokens over the shortest, below which steps count as short.
_SHORT = 2.0
#: Speed of arrivals at which only those of one instant wait for each other.
_SLOWEST = 2.0**-20

Array = NDArray[np.float64]


class SampledArrivals(NamedTuple):
    """Arrivals in ns, and the number of requests that each of them stands for."""

    at_ns: NDArray[np.int64]
    each: int


def summarize_saturation(
    wait: Distribution,
    ttft: Distribution,
    step_ms: float | None,
    arrivals: SampledArrivals | None,
    servers: float = 1.0,
) -> dict[str, Any]:
    """Return ``saturated`` and the group ``saturation`` of the summary.

    ``arrivals`` are those of the measured requests; None in closed loop, where clients wait. ``step_ms`` is
    the length of a step; None if no request had two tokens. ``servers`` are those of the queue, by
    ``servers_of``.
    """
    queue = None if arrivals is None else _thinned(arrivals, servers)
    demand = None if queue is None else queue.rate_per_s
    long = (wait["avg"] or 0.0) > (step_ms or 0.0)
    served = queue.served_per_s(wait["avg"] or 0.0) if queue is not None and long else None
    exceeds = demand is not None and served is not None and demand > served
    saturated = long and (exceeds or _dominates(wait, ttft, step_ms or 0.0))
    holds = None
    if saturated and queue is not None and served is not None and demand is not None:
        waits = {
            name: max((ttft[name] or 0.0) - (wait[name] or 0.0), step_ms or 0.0) for name in ("avg", "p50")
        }
        if (wait["p50"] or 0.0) <= waits["p50"]:  # only bursts wait
            waits["avg"] *= _NEARLY_ALL / (1 - _NEARLY_ALL)
        holds = min(queue.held_per_s(served, waits["avg"], waits["p50"]), served)
    return {
        "saturated": saturated,
        "saturation": {
            "wait": wait,
            "arrived_per_s": demand,
            "served_per_s": served,
            "holds_per_s": holds,
            "sentence": _sentence(demand, holds, wait, ttft) if saturated else "",
        },
    }


def servers_of(latency: Mapping[str, Any], wait_ms: float | None, requests_per_s: float | None) -> float:
    """Return the servers of the queue: requests in service (Little's law) while steps stay short, else 1.

    If the mean time between tokens is below twice the shortest, a larger batch would hardly take longer:
    slots or blocks limit the batch, and the next request waits until one of it finishes.
    """
    between = latency["itl"]
    took_ms = (latency["e2e"]["avg"] or 0.0) - (wait_ms or 0.0)
    if not between["avg"] or between["avg"] > _SHORT * between["min"]:
        return 1.0
    return max((requests_per_s or 0.0) * took_ms / 1000, 1.0)


def saturation_sentence(summary: Mapping[str, Any]) -> str:
    """Return the state in words; empty if the run is not saturated, or is of a version without the state."""
    return str(summary.get("saturation", {}).get("sentence", ""))


def queue_grows(figures: Mapping[str, Any]) -> bool:
    """Return True if waits grow with a trace, by a run's flat figures: saturated, and not in bursts alone."""
    rates = figures.get("saturation.arrived_per_s"), figures.get("saturation.holds_per_s")
    return figures.get("saturated") is True and not _are_bursts(*rates)


def _are_bursts(demand: float | None, holds: float | None) -> bool:
    """Return True if machines hold the rate that arrives: only requests that arrive together wait."""
    return demand is not None and holds is not None and holds > 0.99 * demand


def _dominates(wait: Distribution, ttft: Distribution, step_ms: float) -> bool:
    """Return True if waiting is over a step, and most of TTFT at mean and median or nearly all its mean."""
    pairs = [(wait[name] or 0.0, ttft[name] or 0.0) for name in ("avg", "p50")]
    mean, whole = pairs[0]
    if mean > _NEARLY_ALL * whole and mean > step_ms:
        return True
    return all(waited > _MOST * whole and waited > step_ms for waited, whole in pairs)


def _sentence(demand: float | None, holds: float | None, wait: Distribution, ttft: Distribution) -> str:
    waited = f"mean wait {format_time_ms(wait['avg'] or 0.0)}, mean TTFT {format_time_ms(ttft['avg'] or 0.0)}"
    if demand is None or holds is None:
        return f"clients wait ({waited}); use more machines or fewer clients"
    if _are_bursts(demand, holds):
        return f"requests that arrive together wait for each other ({waited}); use more machines"
    return f"{significant(demand)} requests/s arrive, about {significant(holds)}/s would hold ({waited})"


class _Arrivals:
    """Arrivals in s from the first one on, ascending, each of ``weight`` requests."""

    def __init__(self, times_s: Array, weight: float, rate_per_s: float, servers: float) -> None:
        self._times_s, self._weight, self.rate_per_s = times_s, weight, rate_per_s
        #: Equal services in order: every ``servers``-th request is served where the first one was.
        self._servers = min(max(round(servers / weight), 1), len(times_s))
        self._order = np.arange(len(times_s)) // self._servers * (self._servers * weight)

    def _waits_ms(self, served_per_s: float, speed: float) -> Array:
        """Return the waits in one queue, with arrivals ``speed`` times as fast."""
        work = self._order / served_per_s - self._times_s / speed
        work = np.append(work, np.full(-len(work) % self._servers, np.inf)).reshape(-1, self._servers)
        waits: Array = 1000 * (work - np.minimum.accumulate(work)).ravel()[: len(self._order)]
        return waits

    def served_per_s(self, wait_ms: float) -> float:
        """Return the service rate at which the mean wait is ``wait_ms``."""
        requests, span_s = len(self._times_s) * self._weight, float(self._times_s[-1])
        least, most = requests / (2 * wait_ms / 1000 + span_s), 1000 * requests / wait_ms
        return _last(least / 8, most, lambda rate: float(self._waits_ms(rate, 1.0).mean()) > wait_ms)

    def held_per_s(self, served_per_s: float, mean_ms: float, median_ms: float) -> float:
        """Return the highest arrival rate at which waits stay below these limits, in ms, at mean or median.

        Requests of one instant wait for each other at any rate: the limits are beyond these waits.
        The median counts only if the waits of the recorded arrivals exceed its limit.
        """
        least = self._waits_ms(served_per_s, _SLOWEST)
        mean_ms, median_ms = mean_ms + float(least.mean()), median_ms + float(np.median(least))
        uses_median = float(np.median(self._waits_ms(served_per_s, 1.0))) > median_ms

        def exceeds(speed: float) -> bool:
            waits = self._waits_ms(served_per_s, speed)
            return bool(waits.mean() > mean_ms and (not uses_median or np.median(waits) > median_ms))

        return self.rate_per_s * _last(_SLOWEST, 1.0, lambda speed: not exceeds(speed))


def _thinned(arrivals: SampledArrivals, servers: float) -> _Arrivals | None:
    """Return arrivals as a queue sees them; None if no time passes between the first and the last one."""
    ordered, each = np.sort(arrivals.at_ns), arrivals.each
    if len(ordered) < 2 or ordered[0] == ordered[-1]:
        return None
    every = -(-len(ordered) // _POINTS)
    rate_per_s = (len(ordered) - 1) * each * NS_PER_S / int(ordered[-1] - ordered[0])
    return _Arrivals((ordered[::every] - ordered[0]) / NS_PER_S, every * each, rate_per_s, servers)


def _last(low: float, high: float, holds: Callable[[float], bool]) -> float:
    """Return the highest value up to which a condition holds, by bisection of the logarithm."""
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
