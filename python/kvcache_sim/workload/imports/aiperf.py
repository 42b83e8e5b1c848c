"""AIPerf's ``profile_export.jsonl``: one line per request with its times and lengths.

Source: aiperf 0.13.0; ``profile_export_raw.jsonl`` (``--export-level raw``) also has the payloads, which
determine block ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvcache_sim.base.units import NS_PER_MS
from kvcache_sim.workload.imports.calls import Call, log_of_calls
from kvcache_sim.workload.imports.source import amount_of, problem
from kvcache_sim.workload.prompts.body import member
from kvcache_sim.workload.readers.format import first_object

_COUNTS = {
    "prompt_tokens": ("usage_prompt_tokens", "input_sequence_length"),
    "completion_tokens": ("usage_completion_tokens", "output_sequence_length"),
    "cached_tokens": ("usage_prompt_cache_read_tokens",),
}


def _detect(head: bytes) -> bool:
    is_timed = b'"credit_issued_ns"' in head or b'"request_start_ns"' in head
    return is_timed and "metadata" in first_object(head)


def _calls(number: int, row: Any) -> Iterator[Call]:
    metadata, payload, metrics = (member(row, name) for name in ("metadata", "payload", "metrics"))
    start = member(metadata, "request_start_ns")
    if type(start) is not int:
        raise problem(number, "not a record of AIPerf", row, "metadata.request_start_ns")
    wrong = "a request of the warm-up" if metadata.get("benchmark_phase") == "warmup" else ""
    if row.get("error") is not None or metadata.get("was_cancelled"):
        wrong = "ended with an error or was cancelled"
    metrics = metrics if isinstance(metrics, dict) else {}
    values = {name: member(metric, "value") for name, metric in metrics.items()}
    first_ms = amount_of(values.get("time_to_first_token"))
    yield Call(
        start,
        payload if isinstance(payload, dict) else None,
        usage=({name: member(values, *theirs) for name, theirs in _COUNTS.items()},),
        session=metadata.get("conversation_id"),
        first_ns=None if first_ms is None else start + round(first_ms * NS_PER_MS),
        wrong=wrong,
    )


KIND = log_of_calls(
    "aiperf", "AIPerf's profile_export.jsonl, or the raw export, whose prompts name blocks", _detect, _calls
)
