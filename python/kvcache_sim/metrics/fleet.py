"""What machines that came, went or failed did, and what a fleet that scales is paid for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcache_sim.metrics.figure import Figure
from kvcache_sim.units import NS_PER_S

FIGURES = (
    Figure("fleet.joined", "", "machines that joined while requests were served"),
    Figure("fleet.drained", "", "machines that were sent nothing more and served what they had"),
    Figure("fleet.lost", "", "machines that were lost with all they held"),
    Figure("fleet.retried", "", "times that a request of a lost machine started again elsewhere"),
    Figure("fleet.tiers_lost", "", "times that a tier of a machine lost its copies"),
    Figure("fleet.flushes", "", "times that caches were emptied, as by a weight update"),
    Figure("fleet.blocks_lost", "", "copies lost with these"),
    Figure("fleet.index_lost", "", "times that the router lost what it knew of the machines' caches"),
    Figure("fleet.ordered", "", "machines that a scaling policy ordered"),
    Figure("fleet.released", "", "machines that it let go: given up while they started, or drained and off"),
    Figure("fleet.warmed_blocks", "blocks", "blocks that machines copied from a peer before they served"),
    Figure(
        "fleet.machine_s",
        "s",
        "machine-seconds: of each machine from its order, or the first arrival, until it is off or the end",
    ),
    Figure("fleet.changes.row.s", "s", "when a scaling policy changed the fleet, in the whole run"),
    Figure("fleet.changes.row.change", "", "what it did: ordered, serves, drains or off"),
    Figure("fleet.changes.row.machine", "", "the machine"),
)

#: What came and went, and what failed, in the order it is told.
_COUNTED = (
    "joined",
    "drained",
    "lost",
    "retried",
    "tiers_lost",
    "flushes",
    "blocks_lost",
    "index_lost",
    "ordered",
    "released",
    "warmed_blocks",
)


def summarize_fleet(counters: Mapping[str, int], changes: Sequence[tuple[int, str, int]]) -> dict[str, Any]:
    """Return the group ``fleet`` of the summary, empty where nothing came, went or failed."""
    found: dict[str, Any] = {
        name: counters[f"membership.{name}"] for name in _COUNTED if f"membership.{name}" in counters
    }
    if "membership.machine_ns" in counters:
        found["machine_s"] = counters["membership.machine_ns"] / NS_PER_S
        found["changes"] = [
            {"s": at_ns / NS_PER_S, "change": change, "machine": machine}
            for at_ns, change, machine in changes
        ]
    return {"fleet": found} if found else {}
