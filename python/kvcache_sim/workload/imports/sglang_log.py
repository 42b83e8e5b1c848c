"""SGLang's request log, ``--log-requests``, as text or JSON; it has whole prompts at level 3.

Source: sglang 0.5.23, ``srt/utils/request_logger.py``: each request is logged when received and when
finished, the latter with ``meta_info`` and everything in the former.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kvcache_sim.base.units import NS_PER_S
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests, each_line
from kvcache_sim.workload.imports.naming import Logged
from kvcache_sim.workload.imports.source import amount_of, json_line, problem, text_literal, tokens_of
from kvcache_sim.workload.prompts.body import count, member
from kvcache_sim.workload.readers.dates import time_ns

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)")
_TEXT = re.compile(r"(Receive|Finish): obj=\w+\(")
_EVENT = re.compile(rb'"event"\s*:\s*"request\.')
_RID = re.compile(r"\brid='([^']*)'")
_TOKENS = re.compile(r"\binput_ids=(\[[\d, ]*\])(?! \.\.\. )")
_PROMPT = re.compile(r"""\btext=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?! \.\.\. )""")
_NUMBERS = {
    name: re.compile(rf"'{name}': ([\d.e+-]+)")
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "e2e_latency")
}
_OUTPUT_IDS = re.compile(r"'output_ids': (\[[\d, ]*\])(?! \.\.\. )")


def _detect(head: bytes) -> bool:
    return bool(_EVENT.search(head)) or bool(_TEXT.search(head.decode("utf-8", "replace")))


def _read(source: TraceSource, reading: Reading) -> Requests:
    received: dict[str, tuple[int, int]] = {}

    def take(number: int, text: str) -> Logged | None:
        entry = _of_json(number, text) if text.lstrip().startswith("{") else _of_text(number, text)
        if entry is None:
            return None
        finished, at_ns, obj, meta = entry
        name = str(obj.get("rid"))
        if not finished:
            received[name] = (number, at_ns)
            return None
        _, arrived_ns = received.pop(name, (number, -1))
        return _request(number, arrived_ns, at_ns, obj, meta, reading)

    yield from each_line(source, reading, take)
    for line, _ in received.values():
        reading.notes.leave_out(line, "received, and not finished when the log ends")


def _request(
    number: int,
    arrived_ns: int,
    finished_ns: int,
    obj: dict[str, Any],
    meta: dict[str, Any],
    reading: Reading,
) -> Logged | None:
    inputs = count(meta, "prompt_tokens")
    outputs = count(meta, "completion_tokens")
    if inputs is None or outputs is None or inputs == 0:
        reading.notes.leave_out(number, "no counts of tokens: no request for a generation")
        return None
    if arrived_ns < 0:
        latency = amount_of(meta.get("e2e_latency"))
        if latency is None:
            reading.notes.leave_out(number, "finished, and received before the log begins")
            return None
        arrived_ns = max(finished_ns - round(latency * NS_PER_S), 0)
    tokens = obj.get("input_ids")
    prompt = tokens_of(number, tokens) if isinstance(tokens, list) else obj.get("text")
    if not isinstance(prompt, str | list) or not prompt:
        prompt = None
        reading.notes.remark(
            "requests without a whole text or input_ids (--log-requests-level 3) have no block ids"
        )
    answer = obj.get("output_ids")
    cached = count(meta, "cached_tokens")
    measured = {} if cached is None else {"cached_tokens": float(cached)}
    whole = tokens_of(number, answer) if isinstance(answer, list) and len(answer) == outputs else None
    return Logged(arrived_ns, prompt, whole, inputs, outputs, measured=measured)


_Entry = tuple[bool, int, dict[str, Any], dict[str, Any]]


def _of_json(number: int, text: str) -> _Entry | None:
    row = json_line(number, text)
    event = member(row, "event")
    if event not in ("request.received", "request.finished"):
        return None
    at, obj, out = time_ns(row.get("timestamp")), row.get("obj"), row.get("out") or {}
    if at is None or not isinstance(obj, dict) or "rid" not in row or not isinstance(out, dict):
        raise problem(number, "not an event of SGLang", text, "timestamp, event, rid, obj")
    obj = {**obj, "rid": row["rid"], "output_ids": out.get("output_ids")}
    meta = out.get("meta_info")
    return event == "request.finished", at, obj, meta if isinstance(meta, dict) else {}


def _of_text(number: int, text: str) -> _Entry | None:
    kind = _TEXT.search(text)
    if kind is None:
        return None
    stamp, rid = _STAMP.search(text), _RID.search(text)
    at = time_ns(stamp[1].replace(",", ".")) if stamp else None
    if at is None or rid is None:
        raise problem(number, "no time or no rid", text, "[YYYY-MM-DD HH:MM:SS] … Receive: obj=…(rid='…'")
    obj: dict[str, Any] = {"rid": rid[1]}
    request, _, out = text.partition(", out={")
    if found := _TOKENS.search(request):
        obj["input_ids"] = json_line(number, found[1])
    if found := _PROMPT.search(request):
        obj["text"] = text_literal(number, found[1])
    if found := _OUTPUT_IDS.search(out):
        obj["output_ids"] = json_line(number, found[1])
    values = {
        name: json_line(number, m[1]) for name, number_of in _NUMBERS.items() if (m := number_of.search(out))
    }
    return kind[1] == "Finish", at, obj, values


KIND = LogKind("sglang", "SGLang's --log-requests as text or JSON (level 3 for block ids)", _detect, _read)
