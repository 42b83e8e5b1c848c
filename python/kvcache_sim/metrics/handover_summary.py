"""What hand-overs between prefill and decode machines cost, for the summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.figure import Figure
from kvcache_sim.metrics.percentiles import describe
from kvcache_sim.tiers import HAND_OVER

FIGURES = (
    Figure("handover.requests", "", "finished requests whose KV was handed to a decode machine"),
    Figure("handover.blocks", "blocks", "blocks of their prompts that were not there and were sent"),
    Figure("handover.bytes", "bytes", "KV sent by hand-overs"),
    Figure(
        "handover.wait.<statistic>",
        "ms",
        "from the end of the prompt's prefill until its KV was on the decode machine",
    ),
    Figure("handover.room.<statistic>", "ms", "of it, waiting for a place and for room there"),
    Figure(
        "handover.share_of_ttft",
        "share",
        "sum of the waits before first tokens / sum of TTFT, of what was handed over",
    ),
    Figure("handover.share_of_e2e", "share", "sum of all waits / sum of E2E, of what was handed over"),
    Figure("handover.machines", "", "requests handed to each machine, by its number"),
)


def summarize_handovers(done: Mapping[str, NDArray[Any]], counters: Mapping[str, int]) -> dict[str, Any]:
    """Return counts, times in ms and shares of finished requests' hand-overs; None is "never measured"."""
    sent = done["decode_machine"] >= 0
    rows = {name: column[sent] for name, column in done.items()}
    wait = rows["handover_ns"] + rows["handover_gap_ns"]
    ttft, e2e = (int((rows[end] - rows["arrival_ns"]).sum()) for end in ("first_token_ns", "finish_ns"))
    machines = np.bincount(rows["decode_machine"], minlength=counters.get("machines", 0))
    return {
        "requests": int(sent.sum()),
        "blocks": int(rows["handover_blocks"].sum()),
        "bytes": counters.get(f"edge.{HAND_OVER}.bytes", 0),
        "wait": describe(wait),
        "room": describe(rows["handover_room_ns"]),
        "share_of_ttft": int(rows["handover_ns"].sum()) / ttft if ttft else None,
        "share_of_e2e": int(wait.sum()) / e2e if e2e else None,
        "machines": machines.tolist() if sent.any() else [],
    }
