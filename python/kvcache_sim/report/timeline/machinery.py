"""Machines on the timeline: scheduler steps, transfers, evictions by tier, arrows, and sampled counters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.tiers import TIERS
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.report.timeline.requests import lanes
from kvcache_sim.report.timeline.trace_json import Track, counter_record, flow_record, slice_record

#: Counters of channels, which belong to no machine, are drawn in a process of their own.
CHANNELS_PID = 100_000
_STATES = ("held", "cached", "in_flight")


class _Series(NamedTuple):
    """The samples of one counter: their times, and the values."""

    times_ns: list[int]
    values: list[int]


def counter_records(series: dict[str, Any]) -> list[str]:
    """Return the counter samples of series columns."""
    names: CodedText = series["name"]
    samples: Samples = {}
    order = np.lexsort((series["time_ns"], names.codes, series["machine"]))
    machine, code = series["machine"][order], names.codes[order]
    time_ns, value = series["time_ns"][order], series["value"][order]
    breaks = np.flatnonzero((np.diff(machine) != 0) | (np.diff(code) != 0)) + 1
    for part in np.split(np.arange(len(order)), breaks):
        if len(part):
            key = (int(machine[part[0]]), names.words[code[part[0]]])
            samples[key] = _Series(time_ns[part].tolist(), value[part].tolist())
    records: list[str] = []
    for (index, name), (times, values) in samples.items():
        pid = index + 1 if index >= 0 else CHANNELS_PID
        if name in ("queue", "running", "loading"):
            records += [counter_record(pid, name, t, {name: v}) for t, v in zip(times, values, strict=True)]
        elif name.endswith(".held"):
            records += _occupancy(pid, index, name.removesuffix(".held"), samples)
        elif name == "input_tokens":
            records += _hit_rate(pid, times, values, samples.get((index, "cached_tokens")))
        elif name.endswith(".busy_ns"):
            records += _use(pid, name.removeprefix("channel.").removesuffix(".busy_ns"), times, values)
    return records


#: Series by machine and name.
Samples = dict[tuple[int, str], _Series]


def _occupancy(pid: int, machine: int, tier: str, samples: Samples) -> list[str]:
    states = {state: samples.get((machine, f"{tier}.{state}")) for state in _STATES}
    present = {state: found for state, found in states.items() if found is not None}
    return [
        counter_record(pid, f"{tier} blocks, {state}", t, {state: v})
        for state, (times, values) in present.items()
        for t, v in zip(times, values, strict=True)
    ]


def _hit_rate(pid: int, times: list[int], inputs: list[int], cached: _Series | None) -> list[str]:
    if cached is None:
        return []
    records = []
    before = (0, 0)
    for time_ns, total, served in zip(times, inputs, cached.values, strict=True):
        asked = total - before[0]
        if asked:
            percent = round(100 * (served - before[1]) / asked, 2)
            records.append(counter_record(pid, "hit rate, %", time_ns, {"hit rate": percent}))
            before = (total, served)
    return records


def _use(pid: int, channel: str, times: list[int], busy: list[int]) -> list[str]:
    records = []
    for index in range(1, len(times)):
        span = max(1, times[index] - times[index - 1])
        percent = round(100 * (busy[index] - busy[index - 1]) / span, 2)
        records.append(counter_record(pid, f"{channel} use, %", times[index - 1], {"use": percent}))
    return records


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
        start_ns, duration_ns = columns["time_ns"][row], columns["duration_ns"][row]
        machine, blocks = columns["machine"][row], columns["blocks"][row]
        if kind == "step":
            track = Track(machine + 1, _STEPS)
            names[track] = "steps"
            tokens = columns["tokens"][row]
            name = f"step {tokens} prefill tokens, {blocks} decoding" if tokens else f"step {blocks} decoding"
            records.append(slice_record(track, name, start_ns, duration_ns))
        elif kind == "transfer":
            track, name = channels[row]
            names[track] = name
            request = columns["request"][row]
            shown = {"blocks": blocks, "request": request}
            records.append(slice_record(track, f"{blocks} blocks", start_ns, duration_ns, shown))
            step = steps.ending_after(machine, start_ns + duration_ns)
            if request in tracks and step is not None:
                begin = min(starts_ns[request], start_ns)
                flow = len(records)
                records.append(flow_record("s", tracks[request], begin, flow))
                records.append(flow_record("t", track, start_ns, flow))
                records.append(flow_record("f", Track(machine + 1, _STEPS), step, flow))
        elif kind == "evict":
            track = Track(machine + 1, _TIERS.get(detail, _UNKNOWN_TIER))
            names[track] = f"{detail} moves"
            records.append(slice_record(track, f"evict {blocks} blocks", start_ns, duration_ns))
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
            of_machine = machine == index
            order = np.argsort(end[of_machine], kind="stable")
            self._by_machine[index] = (start[of_machine][order], end[of_machine][order])

    def ending_after(self, machine: int, time_ns: int) -> int | None:
        """Return a time inside the first step that ends after ``time_ns``, or None."""
        if machine not in self._by_machine:
            return None
        starts, ends = self._by_machine[machine]
        index = int(np.searchsorted(ends, time_ns, side="right"))
        if index == len(ends):
            return None
        return max(int(starts[index]), min(time_ns, int(ends[index]) - 1))
