"""Samples over time as counters: tier occupancy, queue, hit rate, channel use."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvcache_sim.metrics.run import CodedText
from kvcache_sim.report.timeline.trace_json import counter_record

#: Counters of channels, which belong to no machine, are drawn in a process of their own.
CHANNELS_PID = 100_000
_STATES = ("active", "cached", "in_flight")


def counter_records(series: dict[str, Any]) -> list[str]:
    """Return the counter samples of series columns."""
    names: CodedText = series["name"]
    samples: dict[tuple[int, str], tuple[list[int], list[int]]] = {}
    order = np.lexsort((series["time_ns"], names.codes, series["machine"]))
    machine, code = series["machine"][order], names.codes[order]
    time_ns, value = series["time_ns"][order], series["value"][order]
    breaks = np.flatnonzero((np.diff(machine) != 0) | (np.diff(code) != 0)) + 1
    for part in np.split(np.arange(len(order)), breaks):
        if len(part):
            key = (int(machine[part[0]]), names.words[code[part[0]]])
            samples[key] = (time_ns[part].tolist(), value[part].tolist())
    records: list[str] = []
    for (index, name), (times, values) in samples.items():
        pid = index + 1 if index >= 0 else CHANNELS_PID
        if name in ("queue", "running", "loading"):
            records += [counter_record(pid, name, t, {name: v}) for t, v in zip(times, values, strict=True)]
        elif name.endswith(".cached"):
            records += _occupancy(pid, index, name.removesuffix(".cached"), samples)
        elif name == "input_tokens":
            records += _hit_rate(pid, times, values, samples.get((index, "cached_tokens")))
        elif name.endswith(".busy_ns"):
            records += _use(pid, name.removeprefix("channel.").removesuffix(".busy_ns"), times, values)
    return records


Samples = dict[tuple[int, str], tuple[list[int], list[int]]]


def _occupancy(pid: int, machine: int, tier: str, samples: Samples) -> list[str]:
    states = {state: samples.get((machine, f"{tier}.{state}")) for state in _STATES}
    present = {state: found for state, found in states.items() if found is not None}
    return [
        counter_record(pid, f"{tier} blocks, {state}", t, {state: v})
        for state, (times, values) in present.items()
        for t, v in zip(times, values, strict=True)
    ]


def _hit_rate(
    pid: int, times: list[int], inputs: list[int], cached: tuple[list[int], list[int]] | None
) -> list[str]:
    if cached is None:
        return []
    records = []
    before = (0, 0)
    for time_ns, total, served in zip(times, inputs, cached[1], strict=True):
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
