"""A trace's prompts cut into blocks: shareable blocks, private blocks, and blocks that may hit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim import _core
from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.request import Outputs, ReplayRequest
from kvcache_sim.workload.readers.stream import NeedsWhole
from kvcache_sim.workload.trace import Trace
from kvcache_sim.workload.upper_bound import held_ids

#: Upper limit of the blocks of a trace.
_EVERYTHING = 2**62


@dataclass(frozen=True)
class PromptBlocks:
    """The requests of a trace in blocks of ``block_size_tokens``, one entry a request.

    ``blocks`` are the prompt's blocks that ids name, ``private_blocks`` the blocks of this request
    alone (past the ids, outputs), ``limits`` the leading blocks that may count as hits.
    """

    trace: Trace
    block_size_tokens: int
    blocks_per_id: int
    blocks: NDArray[np.uint32]
    private_blocks: NDArray[np.uint32]
    limits: NDArray[np.uint32]

    @cached_property
    def native(self) -> _core.ReplayPrompts:
        """The same for the core; arrays are copied once."""
        return _core.ReplayPrompts(
            self.trace.block_ids,
            self.trace.id_offsets,
            self.blocks_per_id,
            self.blocks,
            self.private_blocks,
            self.trace.arrival_ns,
        )

    @cached_property
    def names(self) -> NDArray[np.uint64]:
        """The name of each block in a frequency sketch: the trace's own id where a block is one id.

        Empty where ids are numbered from 0 as they appear, are texts, or name several blocks each. A block's
        name is then its number, counted from 1.
        """
        id_names = self.trace.id_names
        if isinstance(id_names, list) or self.blocks_per_id > 1:
            return np.empty(0, np.uint64)
        return id_names.astype(np.uint64)

    @property
    def references(self) -> int:
        """Return the number of blocks of all requests, private blocks included."""
        return int(self.blocks.sum(dtype=np.int64) + self.private_blocks.sum(dtype=np.int64))

    @cached_property
    def known(self) -> NDArray[np.uint32]:
        """Leading blocks of each request that an earlier prompt had and that may hit."""
        shown = self.native.belady(_EVERYTHING).hits
        return np.minimum(shown, self.limits).astype(np.uint32)

    def numbered_paths(self) -> Iterator[list[int]]:
        """Yield the blocks of each request, root first, as numbers: shareable ones, then private ones."""
        ids, offsets, per = self.trace.block_ids, self.trace.id_offsets.tolist(), self.blocks_per_id
        fresh = self.trace.distinct_ids * per
        for i, (named, private) in enumerate(
            zip(self.blocks.tolist(), self.private_blocks.tolist(), strict=True)
        ):
            row = ids[offsets[i] : offsets[i + 1]].tolist()
            path = [d * per + k for d in row for k in range(per)][:named] if per > 1 else row[:named]
            yield path + list(range(fresh, fresh + private))
            fresh += private

    def hit_tokens(self, hits: NDArray[np.uint32] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return tokens served for hits in blocks: a partial last block counts its own tokens only."""
        return np.minimum(hits.astype(np.int64) * self.block_size_tokens, self.trace.input_tokens)


def blocks_of_prompts(request: ReplayRequest) -> PromptBlocks:
    """Cut the prompts of a replay into blocks.

    ``last_partial: keep`` takes every id as a whole id of blocks, the last included, and lets all hit: the
    count of block references. ``drop`` takes floor(n / block size) blocks of which floor((n − 1) / block
    size) may hit, as engines do (semantics 1). Raises ``UsageError`` for settings that have no meaning here.
    """
    trace, size = request.trace, request.block_size_tokens
    per_id = cut_ids(trace.block_size, size)
    if request.reuse_outputs:
        raise UsageError("outputs are private in this replay", where="--reuse-outputs")
    named = np.diff(trace.id_offsets) * per_id
    prompt = trace.input_tokens // size
    if request.last_partial == "keep":
        refuse_outputs(request)
        blocks = limits = named
        private = np.zeros_like(named)
    else:
        total = (trace.input_tokens + _output_tokens(trace, request.outputs)) // size
        blocks = np.minimum(prompt, named)
        private = total - blocks
        limits = (
            blocks if request.discipline == "flat" else np.minimum(blocks, (trace.input_tokens - 1) // size)
        )
    return PromptBlocks(
        trace=trace,
        block_size_tokens=size,
        blocks_per_id=per_id,
        blocks=blocks.astype(np.uint32),
        private_blocks=private.astype(np.uint32),
        limits=limits.astype(np.uint32),
    )


def cut_ids(trace_block_tokens: int, block_size_tokens: int) -> int:
    """Return the blocks of an id; raises ``UsageError`` for a size that does not divide the trace's.

    Blocks of several ids are those of ``in_coarser_blocks``: ``NeedsWhole`` where rows are read one by one.
    """
    if block_size_tokens > trace_block_tokens and not block_size_tokens % trace_block_tokens:
        what, hint = "blocks of several ids need the whole trace", "give it as a file"
        raise NeedsWhole(what, where="--block-size", got=str(block_size_tokens), hint=hint)
    if block_size_tokens < 1 or trace_block_tokens % block_size_tokens:
        raise UsageError(
            "block size does not divide the trace's",
            where="--block-size",
            got=str(block_size_tokens),
            expected=f"a divisor or a multiple of {trace_block_tokens}",
        )
    return trace_block_tokens // block_size_tokens


def refuse_outputs(request: ReplayRequest) -> None:
    """Raise ``UsageError`` for outputs behind a partial last block."""
    if request.outputs != "prompt" and request.last_partial == "keep":
        raise UsageError(
            "a partial last block cannot be followed by outputs",
            where="--outputs",
            got=request.outputs,
            hint="use --last-partial drop",
        )


def with_answers(prompts: PromptBlocks) -> PromptBlocks:
    """Return prompts followed by their answers, which a session's next prompt may find (semantics 1)."""
    trace, size = prompts.trace, prompts.block_size_tokens
    held = held_ids(trace, size)
    blocks = held.tokens // size
    filled = (trace.input_tokens + _output_tokens(trace, "computed")) // size
    return replace(
        prompts,
        trace=replace(trace, block_ids=held.ids, id_offsets=held.offsets),
        blocks=blocks.astype(np.uint32),
        private_blocks=np.maximum(filled - blocks, 0).astype(np.uint32),
    )


def _output_tokens(trace: Trace, outputs: Outputs) -> NDArray[np.int64]:
    """Return the tokens that each request fills beyond its prompt."""
    if outputs == "prompt":
        return np.zeros_like(trace.output_tokens)
    return trace.output_tokens if outputs == "all" else np.maximum(trace.output_tokens - 1, 0)


def hit_tokens_sha256(prompts: PromptBlocks, hits: Any) -> str:
    """Return the SHA-256 of the hit tokens of each request as decimals joined by newlines."""
    tokens = prompts.hit_tokens(np.minimum(hits, prompts.limits))
    return hashlib.sha256("\n".join(map(str, tokens.tolist())).encode()).hexdigest()
