"""Requests as load generators with payloads keep them: genai-perf and inference-perf.

Sources: genai-perf's ``profile_export.json`` (perf_analyzer's exporter); kubernetes-sigs/inference-perf, its
per-request report (``apis/base.py``). Bodies are JSON in a text; answers may be pieces of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports.calls import Call, answered, at, body_of, clock_ns, log_of_calls, wrong_of
from kvcache_sim.workload.imports.source import list_of, objects_of
from kvcache_sim.workload.prompts.body import member
from kvcache_sim.workload.readers.format import first_object


def _is_genai_perf(head: bytes) -> bool:
    return "experiments" in first_object(head)


def _genai_perf(number: int, value: Any) -> Iterator[Call]:
    for experiment in objects_of(number, value, "experiments"):
        for request in objects_of(number, experiment, "requests"):
            begins = clock_ns(number, member(request, "timestamp"), 1)
            given = member(request, "request_inputs")
            pieces = [member(one, "response") for one in list_of(member(request, "response_outputs"))]
            pieces = [piece for piece in pieces if piece is not None]
            response = answered(pieces[0] if len(pieces) == 1 else pieces)
            first = clock_ns(number, _first(member(request, "response_timestamps")), 1)
            wrong = wrong_of(request, response)
            if not wrong and not pieces:
                wrong = "without an answer"
            body = body_of(at(given, "payload")) or member(given, "text_input")
            yield Call(
                begins, body, response, first_ns=first, wrong=wrong, most_tokens=at(given, "max_tokens")
            )


def _first(value: Any) -> Any:
    return next(iter(list_of(value)), None)


def _is_inference_perf(head: bytes) -> bool:
    members = first_object(head).keys()
    return {"start_time", "request"} <= members and bool({"info", "end_time"} & members)


def _inference_perf(number: int, row: Any) -> Iterator[Call]:
    begins = clock_ns(number, member(row, "start_time"), NS_PER_S)
    times = at(row, "info/output_token_times", "info/response_metrics/output_token_times")
    counts = {
        "prompt_tokens": at(row, "info/input_tokens", "info/request_metrics/text/input_tokens"),
        "completion_tokens": at(row, "info/output_tokens", "info/response_metrics/output_tokens"),
    }
    served = at(row, "info/response_metrics/server_usage", "info/server_usage")
    yield Call(
        begins,
        body_of(member(row, "request")),
        answered(member(row, "response")),
        (served, counts),
        first_ns=clock_ns(number, _first(times), NS_PER_S),
        wrong=wrong_of(row),
    )


KINDS = (
    log_of_calls("genai-perf", "genai-perf's profile_export.json", _is_genai_perf, _genai_perf),
    log_of_calls("inference-perf", "inference-perf's report by request", _is_inference_perf, _inference_perf),
)
