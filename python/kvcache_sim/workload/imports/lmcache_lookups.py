"""LMCache's log of look-up hashes (``--lookup-hash-log-dir``): rolling hashes of each prompt's full chunks.

A prompt shorter than a chunk is not logged; the tail behind the last full chunk has no hash and never hits.
Source: lmcache 0.5.6, ``lmcache/v1/mp_observability/subscribers/logging/lookup_hash.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcache_sim.workload.imports.documents import each_document
from kvcache_sim.workload.imports.kind import LogKind, Reading, Requests
from kvcache_sim.workload.imports.naming import Imported, salted_names
from kvcache_sim.workload.imports.source import problem
from kvcache_sim.workload.prompts.body import count, member
from kvcache_sim.workload.readers.dates import time_ns
from kvcache_sim.workload.readers.format import first_object

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource


def _detect(head: bytes) -> bool:
    return {"chunk_hashes", "chunk_size", "seq_len"} <= first_object(head).keys()


def _read(source: TraceSource, reading: Reading) -> Requests:
    reading.notes.remark(
        "an id is a chunk; kvsim cachesim --order root is the order of LMCache's own simulator"
    )
    return each_document(source, reading, lambda number, row: _look_up(number, row, reading))


def _look_up(number: int, row: Any, reading: Reading) -> Imported | None:
    at, hashes = time_ns(member(row, "timestamp")), member(row, "chunk_hashes")
    tokens, size = count(row, "seq_len"), count(row, "chunk_size")
    if at is None or tokens is None or not size or not isinstance(hashes, list):
        expected = "timestamp, chunk_size, seq_len, chunk_hashes"
        raise problem(number, "not a look-up of LMCache", row, expected)
    if not all(isinstance(each, str | int) for each in hashes) or len(hashes) > tokens // size:
        raise problem(number, "not the hashes of full chunks", hashes, f"at most {tokens // size} texts")
    if not tokens:
        reading.notes.leave_out(number, "an empty prompt")
        return None
    reading.use_block_size(number, size)
    model = member(row, "model_name")
    ids = salted_names((f"{model}\0{each}" for each in hashes), reading.naming.salt)
    return Imported(at, tokens, reading.assumed_answer(), ids)


KIND = LogKind("lmcache-lookups", "LMCache's look-up hash log: ids are its chunks", _detect, _read)
