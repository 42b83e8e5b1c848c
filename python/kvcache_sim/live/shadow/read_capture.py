"""The batches of a capture of KV events, one after another."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.workload.imports.kv_batch import KvBatch, batch_of
from kvcache_sim.workload.imports.source import json_line, lines_of, member, problem
from kvcache_sim.workload.readers.problems import located_errors, opened


def captured(path: str) -> Iterator[tuple[str, KvBatch]]:
    """Yield (source, batch) of each line.

    Raises UsageError for a missing file, InputOutputError for an unreadable one, TraceError for a bad line.
    """
    source = opened(path, "capture")
    with located_errors(path):
        for number, text in lines_of(source):
            row = json_line(number, text)
            try:
                yield str(member(row, "source") or "engine"), batch_of(row)
            except ValueError as error:
                raise problem(
                    number, f"not a batch of KV events: {error}", text, "[date, events, rank]"
                ) from None
