"""From a log to the lines of a trace: read, put in order of arrival, counted from its first."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kvcache_sim.errors import TraceError
from kvcache_sim.workload.imports.kind import LogKind, Reading
from kvcache_sim.workload.imports.naming import Imported
from kvcache_sim.workload.imports.registry import kind_named, kind_of
from kvcache_sim.workload.readers.json_rows import read_head
from kvcache_sim.workload.readers.problems import opened, told_at
from kvcache_sim.workload.toolbox.write import ms


class ImportedLog:
    """The requests of a log in order of arrival; ``lines`` are Mooncake rows whose times begin at 0.

    Memory: the rows as text. Raises UsageError for a missing file or unknown kind, TraceError for a bad line.
    """

    def __init__(self, kind: LogKind, rows: list[tuple[int, int, str]]) -> None:
        self.kind, self._rows = kind, sorted(rows)

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self._rows)

    def lines(self) -> Iterator[str]:
        """Yield one row a request."""
        start = self._rows[0][0] if self._rows else 0
        for arrival_ns, _, rest in self._rows:
            yield f'{{"timestamp": {ms(arrival_ns - start)}{rest}\n'


def import_log(path: str, name: str, reading: Reading) -> ImportedLog | None:
    """Read a log of the kind ``name``, "" for what its first bytes show; None for what is a trace already."""
    source = opened(path, "log")
    with told_at(path):
        kind = kind_named(name) if name else kind_of(read_head(source), path)
        if kind is None:
            return None
        rows = [
            (row.arrival_ns, order, _text(row)) for order, (_, row) in enumerate(kind.read(source, reading))
        ]
    if not rows:
        left = sum(count for count, _ in reading.notes.left_out.values())
        hint = "; ".join(reading.notes.lines(path)[:2])
        raise TraceError(
            "no requests", where=path, got=f"{left} left out", expected="at least one", hint=hint
        )
    if reading.naming.met_text and reading.naming.said:
        reading.notes.remark(
            f"texts are hashed in blocks of {reading.naming.block_size} tokens, {reading.naming.said}"
        )
    return ImportedLog(kind, rows)


def _text(row: Imported) -> str:
    parts = [f', "input_length": {row.input_tokens}, "output_length": {row.output_tokens}']
    if row.ids:
        parts.append(f', "hash_ids": {json.dumps(row.ids)}')
    if row.named_tokens:
        parts.append(f', "named_length": {row.named_tokens}')
    if row.session:
        parts.append(f', "session_id": "{row.session}"')
    for name, value in row.measured.items():
        parts.append(f', "{name}": {json.dumps(int(value) if value == int(value) else value)}')
    return "".join(parts) + "}"
