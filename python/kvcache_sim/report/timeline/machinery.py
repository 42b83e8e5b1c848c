"""What the machines did: scheduler steps, transfers on channels, evictions by tier, and arrows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.run import CodedText
from kvcache_sim.report.timeline.requests import lanes
from kvcache_sim.report.timeline.trace_json import Track, flow_record, slice_record
from kvcache_sim.tiers import TIERS

_STEPS = 1
_FIRST_CHANNEL = 100
_FIRST_TIER, _UNKNOWN_TIER = 10, 99
_TIERS = {tier: _FIRST_TIER + level for level, tier in enumerate(TIERS)}

Events = dict[str, Any]


def machinery_records(
    events: Events, starts_ns: dict[int, int], tracks: dict[int, Track]
) -> tuple[list[str], dict[Track, str]]:
    """Return slices of steps, transfers and evictions, and the names of their rows.

    An arrow leads from a request (its start of fetching in ``starts_ns``, on its lane in ``tracks``) over
    each transfer made for it to the step that consumed it: the first one that ends after the transfer.
    """
    kinds: CodedText = events["kind"]
    details: CodedText = events["detail"]
    columns = {
        n: events[n].tolist() for n in ("time_ns", "duration_ns", "machine", "request", "tokens", "blocks")
    }
    records: list[str] = []
    names: dict[Track, str] = {}
    channels = _channel_tracks(kinds, details, columns)
    steps = _Steps(events)
    for row, code in enumerate(kinds.codes.tolist()):
        kind, detail = kinds.words[code], details.words[details.codes[row]]
        span = (columns["time_ns"][row], columns["duration_ns"][row])
        machine, blocks = columns["machine"][row], columns["blocks"][row]
        if kind == "step":
            track = Track(machine + 1, _STEPS)
            names[track] = "steps"
            tokens = columns["tokens"][row]
            name = f"step {tokens} prefill tokens, {blocks} decoding" if tokens else f"step {blocks} decoding"
            records.append(slice_record(track, name, span))
        elif kind == "transfer":
            track, name = channels[row]
            names[track] = name
            request = columns["request"][row]
            shown = {"blocks": blocks, "request": request}
            records.append(slice_record(track, f"{blocks} blocks", span, shown))
            step = steps.ending_after(machine, span[0] + span[1])
            if request in tracks and step is not None:
                begin = min(starts_ns[request], span[0])
                flow = len(records)
                records.append(flow_record("s", tracks[request], begin, flow))
                records.append(flow_record("t", track, span[0], flow))
                records.append(flow_record("f", Track(machine + 1, _STEPS), step, flow))
        elif kind == "evict":
            track = Track(machine + 1, _TIERS.get(detail, _UNKNOWN_TIER))
            names[track] = f"{detail} moves"
            records.append(slice_record(track, f"evict {blocks} blocks", span))
    return records, names


def _channel_tracks(
    kinds: CodedText, details: CodedText, columns: dict[str, list[int]]
) -> dict[int, tuple[Track, str]]:
    """Return the row and its name of each transfer: jobs of a channel may overlap (latency, fair sharing)."""
    if "transfer" not in kinds.words:
        return {}
    rows = np.flatnonzero(kinds.codes == kinds.words.index("transfer")).tolist()
    groups = [(columns["machine"][row], details.words[details.codes[row]]) for row in rows]
    starts = [columns["time_ns"][row] for row in rows]
    ends = [columns["time_ns"][row] + columns["duration_ns"][row] for row in rows]
    lane_of = lanes(groups, starts, ends)
    order = {
        key: n for n, key in enumerate(sorted({(*g, lane) for g, lane in zip(groups, lane_of, strict=True)}))
    }
    placed = {}
    for row, (machine, detail), lane in zip(rows, groups, lane_of, strict=True):
        track = Track(machine + 1, _FIRST_CHANNEL + order[(machine, detail, lane)])
        placed[row] = (track, f"{detail} {lane}" if lane else detail)
    return placed


class _Steps:
    """The steps of each machine, to find one by time."""

    def __init__(self, events: Events) -> None:
        kinds: CodedText = events["kind"]
        code = kinds.words.index("step") if "step" in kinds.words else -1
        chosen = kinds.codes == code
        machine, start = events["machine"][chosen], events["time_ns"][chosen]
        end = start + events["duration_ns"][chosen]
        self._by_machine: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        for index in np.unique(machine).tolist():
            own = machine == index
            order = np.argsort(end[own], kind="stable")
            self._by_machine[index] = (start[own][order], end[own][order])

    def ending_after(self, machine: int, time_ns: int) -> int | None:
        """Return a time inside the first step that ends after ``time_ns``, or None."""
        if machine not in self._by_machine:
            return None
        starts, ends = self._by_machine[machine]
        index = int(np.searchsorted(ends, time_ns, side="right"))
        if index == len(ends):
            return None
        return max(int(starts[index]), min(time_ns, int(ends[index]) - 1))
