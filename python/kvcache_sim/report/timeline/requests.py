"""Requests as lanes of slices: queue, look-up, fetch, prefill, decode, on the machine that served them."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from typing import Any

from numpy.typing import NDArray

from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.metrics.ttft_parts import ROWS
from kvcache_sim.report.timeline.trace_json import Track, slice_record

#: Rows of a machine: requests begin here, below its steps, channels and tiers.
FIRST_LANE = 1000
_SHOWN = (
    "input_tokens",
    "output_tokens",
    *(f"cached_{source}_tokens" for source in KV_SOURCES),
    "num_tokens_actually_prefilled",
    "preemptions",
    "session",
    "turn",
)


def request_records(rows: dict[str, NDArray[Any]]) -> tuple[list[str], dict[Track, str], dict[int, Track]]:
    """Return the slices, the names of the lanes, and the lane of each request."""
    records: list[str] = []
    names: dict[Track, str] = {}
    tracks: dict[int, Track] = {}
    columns = {name: values.tolist() for name, values in rows.items()}
    for row, lane in enumerate(lanes(columns["machine"], columns["arrival_ns"], columns["finish_ns"])):
        request = columns["request"][row]
        track = Track(columns["machine"][row] + 1, FIRST_LANE + lane)
        tracks[request] = track
        names[track] = f"requests {lane}"
        arrival, first, finish = (columns[f"{n}_ns"][row] for n in ("arrival", "first_token", "finish"))
        shown = {name: columns[name][row] for name in _SHOWN}
        records.append(slice_record(track, f"request {request}", arrival, finish - arrival, shown))
        start = arrival
        for part in ROWS:
            length = columns[part.column][row]
            if length:
                records.append(slice_record(track, part.words, start, length))
            start += length
        if finish > first:
            records.append(slice_record(track, "decode", first, finish - first))
    return records, names, tracks


def lanes(groups: Sequence[Hashable], starts_ns: Sequence[int], ends_ns: Sequence[int]) -> list[int]:
    """Return a lane, from 0, for each slice so that those of one group in one lane never overlap.

    The fewest lanes that do: each slice, by its start, takes the lowest lane that is free.
    """
    lane = [0] * len(groups)
    free: dict[Hashable, list[int]] = {}
    busy: dict[Hashable, list[tuple[int, int]]] = {}
    for row in sorted(range(len(groups)), key=lambda row: (starts_ns[row], row)):
        group, start = groups[row], starts_ns[row]
        running, unused = busy.setdefault(group, []), free.setdefault(group, [])
        while running and running[0][0] <= start:
            heapq.heappush(unused, heapq.heappop(running)[1])
        lane[row] = heapq.heappop(unused) if unused else len(running)
        heapq.heappush(running, (max(ends_ns[row], start + 1), lane[row]))
    return lane
