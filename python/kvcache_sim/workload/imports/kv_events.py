"""KV events as requests: captures of ``kvsim shadow``, an engine's own batches, Dynamo's router events.

A line of Dynamo's recorder is ``{timestamp (ms since its start), event: {worker_id, event: {event_id, data,
dp_rank}}}``; a dump has the inner object alone, without times. ``data`` is ``{stored: {parent_hash,
blocks}}``, ``{removed: {block_hashes}}`` or ``"cleared"``. Source: ai-dynamo, ``lib/llm/src/recorder.rs``,
``dynamo-kv-router`` 1.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests, each_line
from kvcache_sim.workload.imports.kv_batch import KvBatch, batch_of
from kvcache_sim.workload.imports.kv_lookups import LookUp, LookUps
from kvcache_sim.workload.imports.naming import Imported, salted_names
from kvcache_sim.workload.imports.source import amount_of, json_line, problem
from kvcache_sim.workload.prompts.body import member

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_SEEN = "requests are what events show of them: whole blocks, none that found all and answered briefly"


def _detect(head: bytes) -> bool:
    return b'"BlockStored"' in head or b'"BlockRemoved"' in head or b'"AllBlocksCleared"' in head


class _Sent(NamedTuple):
    """A batch, and the name of the engine that sent it."""

    engine: str
    batch: KvBatch


def _read(source: TraceSource, reading: Reading) -> Requests:
    def sent(row: Any) -> _Sent:
        return _Sent(str(member(row, "source") or ""), batch_of(row))

    for number, look_up in _look_ups(source, reading, sent, "[date, events, rank]"):
        yield number, _imported(look_up, reading)


def _look_ups(
    source: TraceSource, reading: Reading, sent: Callable[[Any], _Sent], form: str
) -> Iterator[tuple[int, LookUp]]:
    engines: dict[tuple[str, int], LookUps] = {}
    found: list[tuple[int, LookUp]] = []
    notes, line = reading.notes, 0

    def leave_out(reason: str) -> None:
        notes.leave_out(line, reason)

    def take(number: int, text: str) -> None:
        nonlocal line
        line, row = number, json_line(number, text)
        try:
            name, batch = sent(row)
            engine = engines.setdefault((name, batch.rank), LookUps(leave_out))
            found.extend((number, each) for each in engine.take(batch))
        except ValueError as error:
            raise problem(number, f"not a batch of KV events: {error}", text, form) from None
        if engine.block_size:
            reading.use_block_size(number, engine.block_size)

    yield from each_line(source, reading, take)
    notes.remark(_SEEN)
    if len(engines) > 1:
        notes.remark(f"{len(engines)} engines: their requests stand in one trace")
    for number, look_up in found:
        if look_up.beginning_unknown:
            notes.leave_out(number, "a look-up behind blocks that were stored before the capture began")
        else:
            yield number, look_up


def _imported(found: LookUp, reading: Reading) -> Imported:
    size, answer = reading.naming.block_size, len(found.blocks) - found.prompt
    # one token more than whole blocks: an engine computes at least one token, so all blocks may hit
    inputs, outputs = found.prompt * size + 1, max(answer * size, 1)
    ids = salted_names(map(str, found.blocks), reading.naming.salt)
    session = reading.naming.session(found.session)
    measured = {"cached_tokens": float(found.found * size)}
    return Imported(found.at_ns, inputs, outputs, ids, inputs + outputs if answer else 0, session, measured)


def _detect_router(head: bytes) -> bool:
    kinds = (b'"stored"', b'"removed"', b'"cleared"')
    return b'"event_id"' in head and b'"data"' in head and any(kind in head for kind in kinds)


def _read_router(source: TraceSource, reading: Reading) -> Requests:
    size, untimed = reading.naming.block_size, False

    def sent(row: Any) -> _Sent:
        nonlocal untimed
        at_ms, timed = member(row, "timestamp"), member(row, "event")
        inner = timed if isinstance(member(timed, "event"), dict) else row
        untimed, of_ms = untimed or at_ms is None, amount_of(at_ms or 0)
        if of_ms is None:
            raise ValueError(f"the timestamp {at_ms!r} is no number of ms")
        event = member(inner, "event") or inner
        rank, tier = member(event, "dp_rank"), str(member(inner, "storage_tier") or "device")
        events = [_router_event(event, size, "GPU" if tier == "device" else tier)]
        return _Sent(str(member(inner, "worker_id")), batch_of([of_ms / 1000, events, rank]))

    for number, look_up in _look_ups(source, reading, sent, "worker_id, event: {event_id, data}"):
        if untimed:
            look_up.prompt = len(look_up.blocks)
        yield number, _imported(look_up, reading)
    reading.notes.remark(f"the block size is not in router events: {size} tokens a block (--block-size)")
    if untimed:
        reading.notes.remark("a dump has no times: one request for each branch, all of them at once")


def _router_event(event: Any, size: int, medium: str) -> dict[str, Any]:
    """Return a router's event as an engine's; ValueError if it is none."""
    data = member(event, "data")
    if data == "cleared":
        return {"type": "AllBlocksCleared"}
    if (stored := member(data, "stored")) is not None:
        blocks = member(stored, "blocks")
        hashes = [member(block, "block_hash") for block in blocks] if isinstance(blocks, list) else blocks
        parent = member(stored, "parent_hash")
        row = {"type": "BlockStored", "parent_block_hash": parent, "block_size": size}
        return row | {"block_hashes": hashes, "medium": medium}
    if (removed := member(data, "removed")) is not None:
        return {"type": "BlockRemoved", "block_hashes": member(removed, "block_hashes"), "medium": medium}
    raise ValueError("neither stored nor removed nor cleared")


KINDS = (
    LogKind("kv-events", "KV events: of kvsim shadow --capture, or an engine's batches", _detect, _read),
    LogKind("dynamo-router", "Dynamo's router events: a recording or a dump", _detect_router, _read_router),
)
