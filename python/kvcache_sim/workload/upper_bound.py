"""Hit tokens of a trace in an unbounded cache, with its requests in sequence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


def held_ids(trace: Trace, block: int, cache_output: bool = True) -> HeldIds:
    """Return the ids of each request's blocks of ``block`` tokens, answers included with ``cache_output``.

    The whole blocks of an answer, its last token excepted, have the ids that the session's next prompt shows
    for them if it continues this one: floor((prompt + output − 1)/block). Source: semantics 1.
    """
    size, counts = trace.block_size, np.diff(trace.id_offsets)
    own = trace.input_tokens
    if not cache_output:
        return HeldIds(trace.id_offsets, trace.block_ids, np.minimum(own // block * block, counts * size))
    computed = own + trace.output_tokens - 1
    if len(trace.named_tokens):
        own = np.maximum(own, np.minimum(trace.named_tokens, computed))
    tokens = np.minimum(own // block * block, counts * size)
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
    source = np.arange(len(trace))
    source[asked], tokens[asked], counts[asked] = shown, end, -(-end // size)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return HeldIds(offsets, trace.block_ids[flat_positions(trace.id_offsets[source], counts)], tokens)


def upper_bound_hit_tokens(
    trace: Trace,
    cache_output: bool = True,
    block_size_tokens: int | None = None,
    skips_prefill: bool = False,
    rejected: NDArray[np.bool_] | None = None,
) -> Int64s:
    """Return the prompt tokens of each request that earlier requests computed, in whole blocks.

    A prompt of n tokens can hit at most floor((n − 1)/block) blocks. Cost: a few passes over the ids.

    Args:
        trace: The requests.
        cache_output: Whether answers are cached.
        block_size_tokens: The cache's block size, a divisor of the trace's; None: the trace's.
        skips_prefill: Whether a whole prompt may hit, floor(n/block) blocks.
        rejected: Requests that write no block, a mask; None: all write theirs.
    """
    block = block_size_tokens or trace.block_size
    per = trace.block_size // block
    held = held_ids(trace, block, cache_output)
    written = held.tokens if rejected is None else np.where(rejected, 0, held.tokens)
    by, held_blocks = _blocks_of_ids(held.offsets, written, trace.block_size, block)
    seen_by = np.full(trace.distinct_ids, len(trace))
    whole = held_blocks == per
    np.minimum.at(seen_by, held.ids[whole], by[whole])
    row, asked = _blocks_of_ids(trace.id_offsets, trace.input_tokens, trace.block_size, block)
    known = (seen_by[trace.block_ids] < row) & (asked == per)
    leading = _leading_true(known, trace.id_offsets)
    found = leading * per
    if per > 1:
        last = np.flatnonzero(leading < np.diff(trace.id_offsets))
        where = trace.id_offsets[last] + leading[last]
        ids = trace.block_ids[where]
        partial = (held_blocks > 0) & ~whole
        partly = _held_before((held.ids[partial], by[partial], held_blocks[partial]), (ids, last))
        found[last] += np.minimum(asked[where], np.where(seen_by[ids] < last, per, partly))
    return np.minimum(found, (trace.input_tokens - (not skips_prefill)) // block) * block


def _blocks_of_ids(offsets: Int64s, tokens: Int64s, size: int, block: int) -> tuple[Int64s, Int64s]:
    """Return for each id its request, and the blocks of its ``size`` tokens that ``tokens`` reach."""
    row = np.repeat(np.arange(len(tokens)), np.diff(offsets))
    begins = (np.arange(len(row)) - offsets[row]) * size
    return row, np.clip((tokens[row] - begins) // block, 0, size // block)


def _held_before(
    held: tuple[NDArray[np.uint32], Int64s, Int64s], asked: tuple[NDArray[np.uint32], Int64s]
) -> Int64s:
    """Return, for each (id, request) of ``asked``, the most blocks of the id that an earlier request holds.

    ``held`` are (id, request, leading blocks of the id).
    """
    asks = len(asked[0])
    ids, request = np.concatenate([held[0], asked[0]]), np.concatenate([held[1], asked[1]])
    blocks = np.concatenate([held[2], np.zeros(asks, np.int64)])
    holds = np.arange(len(ids)) < len(ids) - asks
    order = np.lexsort((holds, request, ids))  # a request asks before it holds
    by_id = np.cumsum(np.diff(ids[order].astype(np.int64), prepend=-1) != 0) * (
        int(blocks.max(initial=0)) + 1
    )
    found = np.empty(len(ids), np.int64)
    found[order] = np.maximum.accumulate(by_id + blocks[order]) - by_id
    return found[~holds]


def _leading_true(flags: NDArray[np.bool_], offsets: Int64s) -> Int64s:
    """Return the number of leading true flags of each ragged row."""
    false_at = np.concatenate((np.flatnonzero(~flags), [len(flags)]))
    first_false = false_at[np.searchsorted(false_at, offsets[:-1])]
    return np.minimum(first_false, offsets[1:]) - offsets[:-1]
