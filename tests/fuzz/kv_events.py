"""Mutated bodies of KV events, from a socket and from a capture; libFuzzer's options follow. ``make fuzz`` runs it."""

from __future__ import annotations

import io
import sys

import atheris

with atheris.instrument_imports(include=["kvcache_sim.workload.imports", "kvcache_sim.extras.live.shadow"]):
    import msgspec
    from kvcache_sim.base.errors import TraceError
    from kvcache_sim.extras.live.shadow.feed import Feed, Source
    from kvcache_sim.workload.imports.kv_batch import KvBatch, batch_of
    from kvcache_sim.workload.imports.kv_lookups import LookUps
    from kvcache_sim.workload.imports.source import json_line

FEED = Feed([], [])


def packed(data: bytes) -> list[KvBatch]:
    """Return the batch of a message as ``kvsim shadow`` takes it; none if it is unreadable."""
    source = Source("tcp://127.0.0.1:1")
    batches = [batch for _, batch in FEED._batch(source, 1, data)]
    assert len(batches) + source.unreadable == 1
    return batches


def lines(data: bytes) -> list[KvBatch]:
    """Return the batches of a capture's lines up to the first that is refused."""
    found = []
    try:
        for number, text in enumerate(io.StringIO(data.decode(errors="replace"))):
            found.append(batch_of(json_line(number + 1, text)))
    except (TraceError, ValueError):
        pass
    return found


def one_input(data: bytes) -> None:
    engine = LookUps(lambda reason: None)
    for batch in [*packed(data), *lines(data)]:
        assert 0 <= batch.at_ns < 10**20
        try:
            engine.take(batch)
        except ValueError:
            continue
    msgspec.json.encode(engine.block_size)


atheris.Setup(sys.argv, one_input)
atheris.Fuzz()
