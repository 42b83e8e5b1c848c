"""Random traces of sessions that grow turn by turn, for tests of serving."""

from dataclasses import fields, replace

import numpy as np
from kvcache_sim.workload.trace import Trace

from support.small_traces import trace_of

MS = 1_000_000


def random_trace(seed: int, requests: int = 120, sessions: int = 12) -> Trace:
    """Return sessions that grow turn by turn over shared system prompts, with ties in arrival."""
    draw = np.random.default_rng(seed)
    histories: list[list[int]] = [[] for _ in range(sessions)]
    fresh = 100
    rows, inputs, outputs, session, turn = [], [], [], [], []
    turns = [0] * sessions
    for _ in range(requests):
        s = int(draw.integers(sessions))
        if not histories[s]:
            histories[s] = [int(draw.integers(3))]
        grow = int(draw.integers(1, 5))
        histories[s] = histories[s] + list(range(fresh, fresh + grow))
        fresh += grow
        partial = int(draw.integers(64))
        rows.append(histories[s] + ([fresh] if partial else []))
        fresh += 1
        inputs.append(len(histories[s]) * 64 + partial)
        outputs.append(int(draw.integers(0, 90)))
        session.append(s)
        turn.append(turns[s])
        turns[s] += 1
        if draw.random() < 0.15:
            histories[s] = []
    arrivals = np.sort(draw.integers(0, 30, requests)) * 100_000_000
    trace = trace_of(rows, 64, inputs, arrivals, outputs)
    trace.session[:], trace.turn[:] = session, turn
    return replace(trace, priority=(5 * np.arange(requests) + 2) % 3)


def with_aborts(seed: int, requests: int = 40, share: float = 0.6, closed_loop: bool = False):
    """Return a trace of which some requests are aborted: at once, between steps, with an arrival, or never in time."""
    trace = random_trace(seed, requests=requests, sessions=7)
    draw = np.random.default_rng(seed + 1000)
    steps = draw.integers(0, 60, requests) * draw.choice([MS, 2 * MS, 10 * MS], requests)
    with_others = draw.integers(0, 40, requests) * 100 * MS
    after = np.where(draw.random(requests) < 0.6, steps, with_others)
    after = np.where(draw.random(requests) < 0.1, 10**13, after)
    after = np.where(draw.random(requests) < share, after, -1).astype(np.int64)
    think = np.where(trace.turn > 0, draw.integers(0, 5, requests) * 50 * MS, -1) if closed_loop else None
    arrivals = trace.arrival_ns * (1 + seed % 5)  # some traces wait a lot, some hardly
    return replace(
        trace, arrival_ns=arrivals, abort_after_ns=after, **({} if think is None else {"think_ns": think})
    )


def turns(seed: int, closed_loop: bool, requests: int = 50):
    """Return a trace of sessions whose next turns come a while after the answer, or at a time of their own."""
    trace = random_trace(seed, requests=requests, sessions=7)
    trace = replace(trace, arrival_ns=trace.arrival_ns * (1 + seed % 4))
    if not closed_loop:
        return trace
    pauses = np.random.default_rng(seed).choice([0, 1, 20, 200, 2000], requests) * MS
    return replace(trace, think_ns=np.where(trace.turn > 0, pauses, -1))


def only(trace: Trace, kept: list[int]) -> Trace:
    """Return the requests of a trace in the rows ``kept``, none of which may wait for another."""
    columns = {
        field.name: column[kept]
        for field in fields(trace)
        if isinstance(column := getattr(trace, field.name), np.ndarray)
        and column.shape == trace.arrival_ns.shape
    }
    rows = [trace.block_ids[trace.id_offsets[row] : trace.id_offsets[row + 1]].tolist() for row in kept]
    first: dict[int, int] = {}
    ids = np.array([first.setdefault(name, len(first)) for row in rows for name in row], np.uint32)
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return replace(trace, **columns | {"id_offsets": offsets, "block_ids": ids})
