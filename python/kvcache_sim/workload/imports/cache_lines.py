"""Log lines of servers that count cached tokens: LMCache's look-ups, and SGLang's prefill batches.

LMCache: ``Reqid: X, Total tokens N, LMCache hit tokens: M, need to load: K``, a line a look-up; a waiting
request is looked up again. SGLang: ``Prefill batch. #new-seq: s, #new-token: a, #cached-token: c`` (since
2026 with a comma), a line a batch and a data-parallel rank. Sources: lmcache ``vllm_v1_adapter.py``, sglang
``srt/managers/scheduler_metrics_mixin.py``, logs of both in public threads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests, each_line
from kvcache_sim.workload.imports.naming import Imported
from kvcache_sim.workload.imports.source import problem
from kvcache_sim.workload.readers.dates import time_ns

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)([^\]]*)\]")
_LOOK_UP = re.compile(r"Reqid: (\S+), Total tokens:? (\d{1,9}),.*?\bLMCache hit tokens:? (\d{1,9})\b")
_BATCH = re.compile(
    r"Prefill batch\W.*?#new-seq: (\d{1,6}), #new-token: (\d{1,9}), #cached-token: (\d{1,9})\b"
)
_DATA_PARALLEL = re.compile(r"\bDP\d+")
#: Prompts on other lines of the log: another kind reads more than these lines say.
_PROMPTS = re.compile(r"prompt_token_ids: \[\d|Received request \S+: prompt: |(?:Receive|Finish): obj=")


class _Line(NamedTuple):
    """A line that matches: its date, the rank of its stamp, and what the pattern found."""

    at_ns: int
    rank: str
    found: tuple[str, ...]


def _detects(pattern: re.Pattern[str], head: bytes) -> bool:
    text = head.decode("utf-8", "replace")
    return pattern.search(text) is not None and not _PROMPTS.search(text)


def _matches(pattern: re.Pattern[str], source: TraceSource, reading: Reading) -> Iterator[tuple[int, _Line]]:
    def take(number: int, text: str) -> _Line | None:
        match = pattern.search(text)
        if match is None:
            return None
        stamp = _STAMP.search(text)
        at_ns = time_ns(stamp[1].replace(",", ".")) if stamp else None
        if stamp is None or at_ns is None:
            raise problem(number, "no date", text, "[YYYY-MM-DD HH:MM:SS] before it")
        return _Line(at_ns, stamp[2], match.groups())

    return each_line(source, reading, take)


def _look_ups(source: TraceSource, reading: Reading) -> Requests:
    seen = set()
    for number, line in _matches(_LOOK_UP, source, reading):
        name, total, hit = line.found
        if (name, total) in seen:
            reading.notes.leave_out(number, "a request that was looked up again")
        elif int(total):
            seen.add((name, total))
            measured = {"cached_tokens": float(hit)}
            yield number, Imported(line.at_ns, int(total), reading.assumed_answer(), [], measured=measured)


def _batches(source: TraceSource, reading: Reading) -> Requests:
    ranks: dict[str, str] = {}
    for number, line in _matches(_BATCH, source, reading):
        group = _DATA_PARALLEL.search(line.rank)
        if ranks.setdefault(group[0] if group else "", line.rank) != line.rank:
            reading.notes.leave_out(number, "a batch that another rank of the same group has logged")
            continue
        sequences, computed, cached = map(int, line.found)
        count, sums = max(min(sequences, cached + computed), 1), (cached, cached + computed)
        for k in range(count):
            hit, tokens = (whole * (k + 1) // count - whole * k // count for whole in sums)
            if tokens:
                measured = {"cached_tokens": float(hit)}
                yield number, Imported(line.at_ns, tokens, reading.assumed_answer(), [], measured=measured)
    reading.notes.remark(
        "a load curve: the sequences of each prefill batch at its time, with its mean length; a prompt in "
        "several chunks counts once a chunk"
    )


KINDS = (
    LogKind("lmcache-log", "LMCache's look-ups in a server's log", partial(_detects, _LOOK_UP), _look_ups),
    LogKind("sglang-batches", "Prefill batch lines of SGLang's log", partial(_detects, _BATCH), _batches),
)
