"""Records of the Chrome trace format: JSON texts, times in µs with ns as decimals.

Format: "Trace Event Format", the JSON that Perfetto and chrome://tracing read.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Track(NamedTuple):
    """The track of a record: a process (a machine) and a thread (a row) of it."""

    pid: int
    tid: int


#: Values shown when a record is clicked.
Arguments = Mapping[str, int | float | str]


def microseconds(time_ns: int) -> str:
    """Return a time in µs, exact to the ns."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def slice_record(
    track: Track, name: str, start_ns: int, duration_ns: int, arguments: Arguments | None = None
) -> str:
    """Return a slice of a track."""
    args = f',"args":{json.dumps(arguments)}' if arguments else ""
    start, length = microseconds(start_ns), microseconds(duration_ns)
    return (
        f'{{"ph":"X","pid":{track.pid},"tid":{track.tid},"ts":{start},"dur":{length},'
        f'"name":{json.dumps(name)}{args}}}'
    )


def counter_record(pid: int, name: str, time_ns: int, values: Mapping[str, int | float]) -> str:
    """Return a sample of a counter with one or more stacked values."""
    return (
        f'{{"ph":"C","pid":{pid},"ts":{microseconds(time_ns)},"name":{json.dumps(name)},'
        f'"args":{json.dumps(values)}}}'
    )


def flow_record(phase: str, track: Track, time_ns: int, flow: int) -> str:
    """Return one end of an arrow: phase ``s`` starts it, ``t`` leads it on, ``f`` ends it."""
    bind = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"ph":"{phase}","cat":"kv","name":"kv","id":{flow},"pid":{track.pid},"tid":{track.tid},'
        f'"ts":{microseconds(time_ns)}{bind}}}'
    )


def naming_records(processes: Mapping[int, str], threads: Mapping[Track, str]) -> list[str]:
    """Return the records that name processes and rows, and keep the rows in the order of their numbers."""
    records = []
    for pid, name in processes.items():
        records.append(_meta("process_name", f'"pid":{pid}', "name", name))
        records.append(_meta("process_sort_index", f'"pid":{pid}', "sort_index", pid))
    for track, name in threads.items():
        source = f'"pid":{track.pid},"tid":{track.tid}'
        records.append(_meta("thread_name", source, "name", name))
        records.append(_meta("thread_sort_index", source, "sort_index", track.tid))
    return records


def _meta(kind: str, source: str, key: str, value: str | int) -> str:
    return f'{{"ph":"M","name":"{kind}",{source},"args":{{"{key}":{json.dumps(value)}}}}}'


def compressed(records: Sequence[str], notes: Mapping[str, str]) -> bytes:
    """Return the whole trace as gzip, the same bytes for the same records."""
    body = ",\n".join(records)
    text = f'{{"displayTimeUnit":"ms","otherData":{json.dumps(notes)},"traceEvents":[\n{body}\n]}}\n'
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)
