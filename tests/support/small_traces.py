"""Small traces for tests: from rows of ids, from random prefix trees, and the streams of an oracle."""

import numpy as np
from hypothesis import strategies as st
from kvcache_sim.workload.trace import Trace

#: Names of ids as files have them: counted from 0, 64-bit hashes, texts, beyond 64 bits.
NAMES = {
    "numbers": lambda k: k,
    "far numbers": lambda k: (k + 1) * 0x9E3779B97F4A7C15 % 2**64,
    "texts": lambda k: f"block {k}",
    "beyond 64 bits": lambda k: 2**70 + 7 * k,
}


def trace_of(rows, block_size=4, input_tokens=None, arrival_ns=None, output_tokens=None) -> Trace:
    """Return a trace whose ids are numbered by first appearance."""
    dense: dict = {}
    ids = [dense.setdefault(x, len(dense)) for row in rows for x in row]
    n = len(rows)
    lengths = [len(row) for row in rows]
    if input_tokens is None:
        input_tokens = [max(1, k * block_size) for k in lengths]
    return Trace(
        arrival_ns=np.array(arrival_ns if arrival_ns is not None else [0] * n, np.int64),
        input_tokens=np.array(input_tokens, np.int64),
        output_tokens=np.array(output_tokens if output_tokens is not None else [1] * n, np.int64),
        id_offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        block_ids=np.array(ids, np.uint32),
        block_size=block_size,
        session=np.full(n, -1, np.int32),
        turn=np.zeros(n, np.int32),
        think_ns=np.full(n, -1, np.int64),
        is_conversational_turn=np.zeros(n, np.bool_),
    )


@st.composite
def tree_traces(draw, block_size=4, most_requests=30) -> Trace:
    """Requests that each share a prefix with an earlier request and then diverge; last ids are partial."""
    rows, tokens, arrivals, now, fresh = [], [], [], 0, 0
    for _ in range(draw(st.integers(1, most_requests))):
        base = draw(st.sampled_from(rows)) if rows else []
        keep = draw(st.integers(0, len(base)))
        new = draw(st.integers(0 if keep else 1, 5))
        row = base[:keep] + [fresh + k for k in range(new)]
        fresh += new
        # an id names its content, so only an id of its own may be partial
        short = draw(st.integers(0, block_size - 1)) if new else 0
        rows.append(row)
        tokens.append(len(row) * block_size - short)
        now += draw(st.integers(0, 5))
        arrivals.append(now)
        # a partial id cannot be followed: the next request must part before it
        if short:
            rows[-1] = [*row[:-1], f"partial{len(rows)}"]
    rows, tokens = _without_followed_partials(rows, tokens, block_size)
    outputs = draw(st.lists(st.integers(1, 9), min_size=len(rows), max_size=len(rows)))
    return trace_of(rows, block_size, tokens, arrivals, outputs)


def _without_followed_partials(rows, tokens, block_size):
    """Give a partial id that another row continues a whole block of its own."""
    fixed, counts = [], []
    for i, (row, count) in enumerate(zip(rows, tokens, strict=True)):
        fixed.append(
            [x if k == len(row) - 1 or not isinstance(x, str) else f"{x}.whole" for k, x in enumerate(row)]
        )
        if row and isinstance(row[-1], str) and row[-1] != f"partial{i + 1}":
            fixed[-1][-1] = f"{row[-1]}.whole"
            count = len(row) * block_size
        counts.append(count)
    return fixed, counts


def discriminating_stream(name: str) -> list[int]:
    """Return one of the three integer streams that separate eviction policies (oracles/README.md)."""
    x, out = 42, []

    def draw() -> int:
        nonlocal x
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        return x >> 33

    for i in range(200_000):
        u = draw()
        if name == "drift":
            out.append(u % 3000 + i // 20 + 1)
            continue
        v = draw()
        if name == "skew":
            out.append(1 + u % (1 + v % 20000))
        else:
            out.append(1_000_000 + i if i % 4 == 3 else 1 + u % (1 + v % 4000))
    return out
