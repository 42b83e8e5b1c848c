"""A capture of KV events as requests: of ``kvsim shadow --capture``, or lines of an engine's own batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests, each_line
from kvcache_sim.workload.imports.kv_batch import batch_of
from kvcache_sim.workload.imports.kv_lookups import LookUp, LookUps
from kvcache_sim.workload.imports.naming import Imported, salted_names
from kvcache_sim.workload.imports.source import json_line, member, problem

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_SEEN = "requests are what events show of them: whole blocks, none that found all and answered briefly"


def _detect(head: bytes) -> bool:
    return b'"BlockStored"' in head or b'"BlockRemoved"' in head or b'"AllBlocksCleared"' in head


def _read(source: TraceSource, reading: Reading) -> Requests:
    engines: dict[tuple[str, int], LookUps] = {}
    found: list[tuple[int, LookUp]] = []
    notes, size = reading.notes, reading.naming.block_size

    def take(number: int, text: str) -> None:
        row = json_line(number, text)
        try:
            batch = batch_of(row)
            engine = engines.setdefault((str(member(row, "source") or ""), batch.rank), LookUps())
            found.extend((number, each) for each in engine.take(batch))
        except ValueError as error:
            raise problem(
                number, f"not a batch of KV events: {error}", text, "[date, events, rank]"
            ) from None
        for _ in range(batch.unknown):
            notes.leave_out(number, "an event of an unknown type")
        if engine.block_size not in (0, size):
            expected = f"--block-size {engine.block_size} (it is {size})"
            raise problem(number, "another block size", engine.block_size, expected)

    yield from each_line(source, reading, take)
    notes.remark(_SEEN)
    if len(engines) > 1:
        notes.remark(f"{len(engines)} engines: their requests stand in one trace")
    for number, look_up in found:
        if look_up.beginning_unknown:
            notes.leave_out(number, "a look-up behind blocks that were stored before the capture began")
        else:
            yield number, _imported(look_up, reading)


def _imported(found: LookUp, reading: Reading) -> Imported:
    size, answer = reading.naming.block_size, len(found.blocks) - found.prompt
    # one token more than whole blocks: an engine computes at least one token, so all blocks may hit
    inputs, outputs = found.prompt * size + 1, max(answer * size, 1)
    ids = salted_names(map(str, found.blocks), reading.naming.salt)
    measured = {"cached_tokens": float(found.found * size)}
    return Imported(found.at_ns, inputs, outputs, ids, inputs + outputs if answer else 0, "", measured)


KIND = LogKind(
    "kv-events", "a capture of KV events (kvsim shadow --capture, or an engine's batches)", _detect, _read
)
