"""Dynamo's request trace (``dynamo.request.trace.v1``): requests with the hashes of their blocks.

Source: ai-dynamo, ``lib/llm/src/request_trace/types.rs``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.imports.documents import each_document
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Imported, salted_names
from kvcache_sim.workload.imports.source import amount_of, problem
from kvcache_sim.workload.prompts.body import count, member

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

SCHEMA = "dynamo.request.trace.v1"


def _detect(head: bytes) -> bool:
    return SCHEMA.encode() in head


def _read(source: TraceSource, reading: Reading) -> Requests:
    return each_document(source, reading, lambda number, row: _event(number, row, reading))


def _event(number: int, row: Any, reading: Reading) -> Imported | None:
    if not isinstance(row, dict) or row.get("schema") != SCHEMA:
        raise problem(number, "another schema", member(row, "schema"), SCHEMA)
    if row.get("event_type") == "request_end":
        return _request(number, row, reading)
    reading.notes.leave_out(number, f"event {row.get('event_type')}")
    return None


def _request(number: int, row: dict[str, Any], reading: Reading) -> Imported | None:
    request = row.get("request")
    if not isinstance(request, dict):
        raise problem(number, "no request", request, "an object")
    replay = request.get("replay")
    received = amount_of(request.get("request_received_ms"))
    at = None if received is None else round(received * NS_PER_MS)
    inputs = count(replay, "input_length")
    inputs = count(request, "input_tokens") if inputs is None else inputs
    outputs = count(request, "output_tokens")
    if at is None or inputs is None or inputs == 0 or outputs is None:
        reading.notes.leave_out(number, "no arrival, or no counts of tokens")
        return None
    measured = {
        name: value
        for name in ("cached_tokens", "ttft_ms")
        if (value := amount_of(request.get(name))) is not None
    }
    session = reading.naming.session(str(member(row.get("agent_context"), "session_id") or ""))
    return Imported(at, inputs, outputs, _ids(number, replay, inputs, reading), 0, session, measured)


def _ids(number: int, replay: Any, inputs: int, reading: Reading) -> list[int]:
    size, hashes = count(replay, "trace_block_size"), member(replay, "input_sequence_hashes")
    if not isinstance(hashes, list) or not hashes:
        reading.notes.remark("requests without replay.input_sequence_hashes have no block ids")
        return []
    if not size:
        raise problem(number, "no block size", size, "replay.trace_block_size in tokens")
    reading.use_block_size(number, size)
    return salted_names(map(str, hashes[: inputs // size]), reading.naming.salt)


KIND = LogKind("dynamo", "Dynamo's request trace, dynamo.request.trace.v1", _detect, _read)
