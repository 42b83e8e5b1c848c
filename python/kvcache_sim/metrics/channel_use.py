"""Traffic of each channel, and the bandwidth that it needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.base.values import Value
from kvcache_sim.metrics.figure import Figure

FIGURES = (
    Figure("channels.<channel>.bytes", "bytes", "what it carried"),
    Figure("channels.<channel>.jobs", "", "transfers it carried"),
    Figure("channels.<channel>.busy_share", "share", "time it was sending / time that is measured"),
    Figure("channels.<channel>.queued_s", "s", "waiting of all jobs before their first byte, in all"),
    Figure("channels.<channel>.bandwidth_bytes_per_s", "bytes/s", "its bandwidth in the scenario"),
    Figure(
        "channels.<channel>.needed_bytes_per_s.<statistic>",
        "bytes/s",
        "over the steps that used KV as it arrived: bytes loaded for the step / "
        "its own compute time; at that rate no more than the first layer is waited for",
    ),
    Figure(
        "channels.<channel>.offered_bytes_per_s.<statistic>",
        "bytes/s",
        "over the seconds in which anything was sent: bytes sent in that second",
    ),
)


class ChannelUse(Value):
    """One channel from a run's begin to its end, or to a mark; rates in bytes per second."""

    name: str
    bandwidth_bytes_per_s: int
    sent_bytes: int
    jobs: int
    busy_ns: int
    queued_ns: int
    #: Samples of ``channels.demand.Demand``.
    needed: NDArray[np.int64]
    offered: NDArray[np.int64]


def later_use(use: ChannelUse, before: ChannelUse) -> ChannelUse:
    """Return a channel's use since ``before``; a second in progress at that time is split."""
    known = max(len(before.offered) - 1, 0)
    offered = use.offered[known:].copy()
    if len(before.offered):
        offered[0] -= before.offered[-1]
        offered = offered[offered > 0]
    return replace(
        use,
        sent_bytes=use.sent_bytes - before.sent_bytes,
        jobs=use.jobs - before.jobs,
        busy_ns=use.busy_ns - before.busy_ns,
        queued_ns=use.queued_ns - before.queued_ns,
        needed=use.needed[len(before.needed) :],
        offered=offered,
    )


def summarize_channels(uses: Iterable[ChannelUse], counted_ns: int) -> dict[str, Any]:
    """Return by name the figures of every channel with traffic in a time of ``counted_ns``."""
    return {
        use.name: {
            "bytes": use.sent_bytes,
            "jobs": use.jobs,
            "busy_share": min(use.busy_ns / counted_ns, 1.0) if counted_ns else None,
            "queued_s": use.queued_ns / NS_PER_S,
            "bandwidth_bytes_per_s": use.bandwidth_bytes_per_s,
            "needed_bytes_per_s": _rates(use.needed),
            "offered_bytes_per_s": _rates(use.offered),
        }
        for use in uses
        if use.jobs
    }


def _rates(samples: NDArray[np.int64]) -> dict[str, float | None]:
    if not len(samples):
        return {"p50": None, "p99": None, "max": None}
    p50, p99 = np.percentile(samples, (50, 99)).tolist()
    return {"p50": p50, "p99": p99, "max": float(samples.max())}
