"""The tokens of a whole trace, batch by batch, in one reused buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import hash_id_text
from kvcache_sim.workload.tokens.collisions import IdCode
from kvcache_sim.workload.tokens.corpus import PromptConfig
from kvcache_sim.workload.tokens.row_key import (
    id_name,
    row_base_seed,
    row_key_text,
    sizes_by_id,
    trace_row_key,
)
from kvcache_sim.workload.trace import Trace

#: Tokens per batch: 1 MiB, so that a reused buffer stays in the second-level cache.
BATCH_TOKENS = 262_144

Names = NDArray[np.int64] | list[str]


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows to write, with all data that a worker needs; ids are dense, as in the trace."""

    first_row: int
    lengths: NDArray[np.int64]
    id_offsets: NDArray[np.int64]  # from 0, length rows + 1
    block_ids: NDArray[np.uint32]
    distinct: NDArray[np.uint32]  # the distinct dense ids of the rows, ascending
    names: Names  # their original ids
    tail_rows: NDArray[np.int64]  # rows, from 0, with tokens beyond their ids
    tail_keys: list[str]  # their keys' texts


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Written rows: row ``first_row + i`` has ``tokens[offsets[i]:offsets[i + 1]]`` (uint32)."""

    first_row: int
    offsets: NDArray[np.int64]
    tokens: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _TokenRows:
    """The columns of one call of the native writer, `_core.write_token_rows`."""

    lengths: NDArray[np.int64]
    id_offsets: NDArray[np.int64]
    block_ids: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    tail_starts: NDArray[np.uint32]
    block_size: int
    separator: int | None


class RowWriter:
    """One worker: it draws the start of an id at the id's first use, independently of other workers."""

    def __init__(self, config: PromptConfig, base_seed: int, distinct_ids: int) -> None:
        self._config = config
        self._base_seed = base_seed
        self._starts = np.zeros(distinct_ids, np.uint32)
        self._drawn = np.zeros(distinct_ids, np.bool_)
        self._code = IdCode(config.source) if config.content == "collision-free" else None

    @property
    def ids_drawn(self) -> int:
        """Number of ids that this worker has drawn a start for."""
        return int(np.count_nonzero(self._drawn))

    def draw(self, distinct: NDArray[np.uint32], names: Names) -> NDArray[np.uint32]:
        """Return the start offsets of ids, drawing those not drawn before."""
        new = ~self._drawn[distinct]
        if new.any():
            fresh = (
                names[new]
                if isinstance(names, np.ndarray)
                else [n for n, w in zip(names, new, strict=True) if w]
            )
            prefix = f"{self._base_seed}:{self._config.scope}:"
            self._starts[distinct[new]] = self._first_draws(prefix, fresh)
            self._drawn[distinct[new]] = True
        return self._starts[distinct]

    def write(self, batch: RowBatch, out: NDArray[np.uint32]) -> TokenBatch:
        """Write a batch's rows to the start of ``out`` (uint32, large enough); the result views it."""
        self.draw(batch.distinct, batch.names)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(batch.lengths)])
        tokens = out[: int(offsets[-1])]
        tail_starts = np.zeros(len(batch.lengths), np.uint32)
        if len(batch.tail_rows):
            prefix = f"{row_base_seed(self._base_seed)}:{self._config.scope}:"
            tail_starts[batch.tail_rows] = self._first_draws(prefix, batch.tail_keys)
        rows = _TokenRows(
            batch.lengths, batch.id_offsets, batch.block_ids, self._starts, tail_starts,
            self._config.block_size, self._config.separator,
        )  # fmt: skip
        _core.write_token_rows(rows, self._config.source.tokens, 0, len(batch.lengths), tokens)
        if self._code is not None:
            self._write_codes(self._code, batch, offsets, tokens)
        return TokenBatch(batch.first_row, offsets, tokens)

    def _first_draws(self, prefix: str, names: Names) -> NDArray[np.uint32]:
        native = _core.seeds_of_names if isinstance(names, list) else _core.seeds_of_ids
        seeds = native(prefix, names)  # type: ignore[arg-type]
        return _core.first_randrange(seeds, self._config.source.size).astype(np.uint32)

    def _write_codes(
        self, code: IdCode, batch: RowBatch, offsets: NDArray[np.int64], tokens: NDArray[np.uint32]
    ) -> None:
        block_size, skip = self._config.block_size, int(self._config.separator is not None)
        codes = [code.tokens(hash_id_text(name)) for name in batch.names]
        positions = np.searchsorted(batch.distinct, batch.block_ids)
        for row in range(len(batch.lengths)):
            for k, index in enumerate(positions[batch.id_offsets[row] : batch.id_offsets[row + 1]]):
                first = int(offsets[row]) + k * block_size
                window = tokens[first + skip : min(first + block_size, int(offsets[row + 1]))]
                written = codes[index][: len(window)]
                window[: len(written)] = written


def token_batches(
    trace: Trace, config: PromptConfig, base_seed: int, batch_tokens: int = BATCH_TOKENS
) -> Iterator[TokenBatch]:
    """Yield every row's tokens, in order, in batches of whole rows; a batch is valid until the next one.

    ``base_seed`` is the seed of the generator ``dataset.prompt.corpus``. Memory: the trace, one start per id,
    and one buffer of ``batch_tokens`` or the longest row. Raises as `check_trace`.
    """
    check_trace(trace, config)
    writer = RowWriter(config, base_seed, trace.distinct_ids)
    ids = np.arange(trace.distinct_ids, dtype=np.uint32)
    writer.draw(ids, id_names(trace, ids))  # in one call: the lanes of the native generator stay full
    buffer = np.empty(longest_batch(trace, batch_tokens), np.uint32)
    for batch in row_batches(trace, batch_tokens):
        yield writer.write(batch, buffer)


def block_starts(trace: Trace, config: PromptConfig, base_seed: int) -> NDArray[np.uint32]:
    """Return the start offset of every distinct id, by dense id: in order of first appearance."""
    ids = np.arange(trace.distinct_ids, dtype=np.uint32)
    return RowWriter(config, base_seed, trace.distinct_ids).draw(ids, id_names(trace, ids))


def check_trace(trace: Trace, config: PromptConfig) -> None:
    """Raise TraceError or UsageError for a trace that cannot be written under these settings.

    Errors: the length rule is violated, the block sizes differ, a window is longer than the corpus, or blocks
    are too short to be distinguished under the collision-free content. The whole trace is checked before any
    row is written, so that the result does not depend on the number of workers.
    """
    if config.block_size != trace.block_size:
        raise UsageError(
            "not the trace's block size",
            where="block_size",
            got=str(config.block_size),
            expected=str(trace.block_size),
        )
    sizes = sizes_by_id(trace)
    tails = trace.input_tokens - np.diff(trace.id_offsets) * trace.block_size
    longest = max(int(sizes.max(initial=0)), int(tails.max(initial=0)))
    if longest > config.source.size:
        raise UsageError(
            "a window longer than the corpus", where="corpus", got=f"{longest} tokens",
            expected=f"at most {config.source.size}", hint="give a larger corpus",
        )  # fmt: skip
    if config.content == "collision-free":
        ids = np.argsort(sizes, kind="stable")
        names = (hash_id_text(id_name(trace, int(dense))) for dense in ids)
        IdCode(config.source).check(names, sizes[ids].tolist(), config.separator)


def row_batches(trace: Trace, batch_tokens: int = BATCH_TOKENS) -> Iterator[RowBatch]:
    """Yield the rows of a trace in order, cut before ``batch_tokens`` would be exceeded."""
    for first, last in _row_ranges(trace.input_tokens, batch_tokens):
        yield row_batch(trace, first, last)


def row_batch(trace: Trace, first: int, last: int) -> RowBatch:
    """Return rows ``first`` up to ``last`` of a trace as one batch."""
    offsets = trace.id_offsets[first : last + 1] - trace.id_offsets[first]
    block_ids = trace.block_ids[trace.id_offsets[first] : trace.id_offsets[last]]
    lengths = trace.input_tokens[first:last]
    tail_rows = np.flatnonzero(lengths > np.diff(offsets) * trace.block_size)
    distinct = np.unique(block_ids)
    keys = [row_key_text(trace_row_key(trace, first + int(row))) for row in tail_rows]
    return RowBatch(first, lengths, offsets, block_ids, distinct, id_names(trace, distinct), tail_rows, keys)


def longest_batch(trace: Trace, batch_tokens: int = BATCH_TOKENS) -> int:
    """Return the number of tokens that the buffer of `row_batches` must hold."""
    return max(batch_tokens, int(trace.input_tokens.max(initial=0)))


def id_names(trace: Trace, dense: NDArray[np.uint32]) -> Names:
    """Return the original ids of dense ones: integers, or texts if they do not fit 64 bits."""
    if len(trace.id_names) == 0:
        return dense.astype(np.int64)
    if isinstance(trace.id_names, list):
        return [str(trace.id_names[k]) for k in dense.tolist()]
    names = trace.id_names[dense]
    if names.dtype == np.uint64:
        return [str(name) for name in names.tolist()]
    return names.astype(np.int64, copy=False)


def _row_ranges(lengths: NDArray[np.int64], batch_tokens: int) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(lengths)
    first = 0
    while first < len(lengths):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + batch_tokens, side="right")))
        yield first, last
        first = last


def row_tokens(trace: Trace, config: PromptConfig, base_seed: int) -> Callable[[int], NDArray[np.uint32]]:
    """Return a function from a row's number to its tokens, equal to those of `token_batches`.

    ``base_seed`` is the seed of the generator ``dataset.prompt.corpus``. Raises as `check_trace`. Memory: one
    start per id; a call costs one row.
    """
    check_trace(trace, config)
    writer = RowWriter(config, base_seed, trace.distinct_ids)

    def of_row(row: int) -> NDArray[np.uint32]:
        batch = row_batch(trace, row, row + 1)
        return writer.write(batch, np.empty(int(batch.lengths[0]), np.uint32)).tokens

    return of_row
