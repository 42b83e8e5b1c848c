"""Hit tokens of a trace in an unbounded cache, with its requests in sequence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import unbounded_hits
from kvcache_sim.workload.rows import flat_positions
from kvcache_sim.workload.sessions import continuations
from kvcache_sim.workload.trace import NO_REQUEST, Trace

Int64s = NDArray[np.int64]


class HeldIds(NamedTuple):
    """The ids that requests leave in a cache: those of request r from ``offsets[r]`` to ``offsets[r + 1]``.

    The ids cover the first ``tokens`` tokens, whole blocks of the cache.
    """

    offsets: Int64s
    ids: NDArray[np.uint32]
    tokens: Int64s


def held_ids(trace: Trace, block: int) -> HeldIds:
    """Return the ids of each request's blocks of ``block`` tokens, answers included.

    The whole blocks of an answer, its last token excepted, have the ids that the session's next prompt shows
    for them if it continues this one: floor((prompt + output − 1)/block). Source: semantics 1.
    """
    source, tokens, counts = _held_rows(trace, block, cache_output=True)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return HeldIds(offsets, trace.block_ids[flat_positions(trace.id_offsets[source], counts)], tokens)


def _held_rows(trace: Trace, block: int, cache_output: bool) -> tuple[Int64s, Int64s, Int64s]:
    """Return the row whose first ids each request leaves, the tokens that they cover, and their number."""
    size, counts = trace.block_size, np.diff(trace.id_offsets)
    tokens_held, source = trace.input_tokens, np.arange(len(trace))
    if not cache_output:
        return source, np.minimum(tokens_held // block * block, counts * size), counts
    computed = trace.kv_tokens
    if len(trace.named_tokens):
        tokens_held = np.maximum(tokens_held, np.minimum(trace.named_tokens, computed))
    tokens = np.minimum(tokens_held // block * block, counts * size)
    following = continuations(trace)
    asked = np.flatnonzero(following != NO_REQUEST)
    shown = following[asked]
    first = tokens[asked] // size
    end = np.minimum(np.minimum(computed[asked], trace.input_tokens[shown]), counts[shown] * size)
    end = end // block * block
    longer = end > tokens[asked]
    # a prompt that ends inside an id has named the blocks there: the next one finds them under that id alone
    last = np.minimum(first, np.minimum(counts[asked], counts[shown]) - 1)
    same = trace.block_ids[trace.id_offsets[asked] + last] == trace.block_ids[trace.id_offsets[shown] + last]
    longer &= same | (tokens[asked] % size == 0)
    asked, shown, end = asked[longer], shown[longer], end[longer]
    source[asked], tokens[asked], counts[asked] = shown, end, -(-end // size)
    return source, tokens, counts


def upper_bound_hit_tokens(
    trace: Trace,
    cache_output: bool = True,
    block_size_tokens: int | None = None,
    skips_prefill: bool = False,
    rejected: NDArray[np.bool_] | None = None,
) -> Int64s:
    """Return the prompt tokens of each request that earlier requests computed, in whole blocks.

    A prompt of n tokens can hit at most floor((n − 1)/block) blocks. Cost: one native pass over the ids.

    Args:
        trace: The requests.
        cache_output: Whether answers are cached.
        block_size_tokens: The cache's block size, a divisor of the trace's; None: the trace's.
        skips_prefill: Whether a whole prompt may hit, floor(n/block) blocks.
        rejected: Requests that write no block, a mask; None: all write theirs.
    """
    block = block_size_tokens or trace.block_size
    source, tokens, _ = _held_rows(trace, block, cache_output)
    left = tokens if rejected is None else np.where(rejected, 0, tokens)
    rows = (trace.block_ids, trace.id_offsets, trace.input_tokens)
    found = unbounded_hits(rows, (source, left), (trace.block_size, block))
    return np.minimum(found, (trace.input_tokens - (not skips_prefill)) // block) * block
