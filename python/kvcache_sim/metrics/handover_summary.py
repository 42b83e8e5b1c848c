"""Cost of hand-overs between prefill and decode machines, for the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.tiers import HAND_OVER
from kvcache_sim.metrics.durations import Durations
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.metrics.machine_loads import added

FIGURES = (
    Figure("handover.requests", "", "finished requests whose KV was handed to a decode machine"),
    Figure("handover.blocks", "blocks", "blocks of their prompts that were not there and were sent"),
    Figure("handover.bytes", "bytes", "KV sent by hand-overs"),
    Figure(
        "handover.wait.<statistic>",
        "ms",
        "from the end of the prompt's prefill until its KV was on the decode machine",
    ),
    Figure("handover.room.<statistic>", "ms", "of it, waiting for a slot and for free blocks there"),
    Figure(
        "handover.share_of_ttft",
        "share",
        "sum of the waits before first tokens / sum of TTFT, of what was handed over",
    ),
    Figure("handover.share_of_e2e", "share", "sum of all waits / sum of E2E, of what was handed over"),
    Figure("handover.machines", "", "requests handed to each machine, by its number"),
)


class HandoverTotals:
    """Hand-overs of finished requests, rows added in batches; None is "never measured"."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._machines = np.zeros(0, np.int64)
        self._wait, self._reserve_wait = Durations(), Durations()

    def add(self, done: Mapping[str, NDArray[Any]]) -> None:
        """Add the columns of some finished requests."""
        sent = done["decode_machine"] >= 0
        if not sent.any():
            return
        rows = {name: done[name][sent] for name in _READ}
        wait = rows["handover_ns"] + rows["handover_gap_ns"]
        self._counts.update(
            requests=len(wait),
            blocks=int(rows["handover_blocks"].sum()),
            before_first_ns=int(rows["handover_ns"].sum()),
            wait_ns=int(wait.sum()),
            ttft_ns=int((rows["first_token_ns"] - rows["arrival_ns"]).sum()),
            e2e_ns=int((rows["finish_ns"] - rows["arrival_ns"]).sum()),
        )
        self._machines = added(self._machines, rows["decode_machine"])
        self._wait.add(wait)
        self._reserve_wait.add(rows["handover_room_ns"])

    def figures(self, counters: Mapping[str, int]) -> dict[str, Any]:
        """Return counts, times in ms and shares."""
        n = self._counts
        unused = max(counters.get("machines", 0) - len(self._machines), 0)
        return {
            "requests": n["requests"],
            "blocks": n["blocks"],
            "bytes": counters.get(f"edge.{HAND_OVER}.bytes", 0),
            "wait": self._wait.describe(),
            "room": self._reserve_wait.describe(),
            "share_of_ttft": n["before_first_ns"] / n["ttft_ns"] if n["ttft_ns"] else None,
            "share_of_e2e": n["wait_ns"] / n["e2e_ns"] if n["e2e_ns"] else None,
            "machines": [*self._machines.tolist(), *[0] * unused] if n["requests"] else [],
        }


_READ = ("handover_ns", "handover_gap_ns", "handover_room_ns", "handover_blocks", "decode_machine",
         "arrival_ns", "first_token_ns", "finish_ns")  # fmt: skip
