"""AIPerf's ``profile_export.jsonl``: one line per request with its times and lengths.

Source: aiperf 0.13.0; ``profile_export_raw.jsonl`` (``--export-level raw``) also has the payloads, which
determine block ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests, each_line
from kvcache_sim.workload.imports.messages import prompt_of
from kvcache_sim.workload.imports.naming import Imported, Logged
from kvcache_sim.workload.imports.source import count_of, json_line, measured_of, member, problem
from kvcache_sim.workload.readers.format import first_row

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_WARMUP = "warmup"


def _detect(head: bytes) -> bool:
    row = first_row(head)
    return (
        row is not None
        and "metadata" in row
        and (b'"credit_issued_ns"' in head or b'"request_start_ns"' in head)
    )


def _read(source: TraceSource, reading: Reading) -> Requests:
    def take(number: int, text: str) -> Imported | None:
        row = json_line(number, text)
        metadata = member(row, "metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("request_start_ns"), int):
            raise problem(number, "not a record of AIPerf", text, "metadata.request_start_ns")
        return _request(number, row, metadata, reading)

    return each_line(source, reading, take)


def _request(number: int, row: dict[str, Any], metadata: dict[str, Any], reading: Reading) -> Imported | None:
    notes = reading.notes
    if row.get("error") is not None or metadata.get("was_cancelled"):
        notes.leave_out(number, "ended with an error or was cancelled")
        return None
    if metadata.get("benchmark_phase") == _WARMUP:
        notes.leave_out(number, "a request of the warm-up")
        return None
    metrics = row.get("metrics") or {}
    if not isinstance(metrics, dict):
        raise problem(number, "metrics are no object", metrics, "metrics by name")
    payload = row.get("payload")
    prompt = prompt_of(number, payload) if isinstance(payload, dict) else None
    inputs = _value(number, metrics, "usage_prompt_tokens", "input_sequence_length")
    outputs = _value(number, metrics, "usage_completion_tokens", "output_sequence_length")
    if outputs is None and isinstance(payload, dict):
        outputs = count_of(number, payload, "max_completion_tokens", "max_tokens")
        notes.remark("the raw export counts no answers: they are as long as max_tokens allowed")
    if (inputs is None and prompt is None) or outputs is None:
        notes.leave_out(number, "no counts of tokens")
        return None
    if prompt is None:
        notes.remark("without payloads (--export-level raw) requests have no block ids")
    measured = {}
    cached = _value(number, metrics, "usage_prompt_cache_read_tokens")
    if cached is not None:
        measured["cached_tokens"] = float(cached)
    first = member(metrics, "time_to_first_token")
    if (first_ms := measured_of(number, first, "value")) is not None:
        measured["ttft_ms"] = first_ms
    session = str(metadata.get("conversation_id") or "")
    start = metadata["request_start_ns"]
    return reading.naming.named(Logged(start, prompt, None, inputs, outputs, session, measured))


def _value(number: int, metrics: dict[str, Any], *names: str) -> int | None:
    for name in names:
        if isinstance(metrics.get(name), dict):
            found = count_of(number, {name: metrics[name].get("value")}, name)
            if found is not None:
                return found
    return None


KIND = LogKind(
    "aiperf", "AIPerf's profile_export.jsonl, or the raw export, whose prompts name blocks", _detect, _read
)
