"""The curve of least recently used from one pass over the trace: stack distances (Mattson et al. 1970)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError
from kvcache_sim.replay.curve.steps import Int64s, Jumps, Ramps, Steps
from kvcache_sim.replay.prompt_blocks import PromptBlocks
from kvcache_sim.replay.request import PromptEnd


@dataclass(frozen=True)
class Reuses:
    """Every reuse of the trace, one entry a run of blocks, in request order.

    Block j (from 0) of an entry is found at capacities ≥ ``capacity + j × step``; ``offset`` are the blocks
    before it in its prompt, ``before`` the request that touched it last.
    """

    request: Int64s
    capacity: Int64s
    blocks: Int64s
    step: Int64s
    before: Int64s
    offset: Int64s

    def only(self, keep: NDArray[np.bool_]) -> Reuses:
        """Return the entries that a mask keeps."""
        columns = (self.request, self.capacity, self.blocks, self.step, self.before, self.offset)
        return Reuses(*(column[keep] for column in columns))


@dataclass(frozen=True)
class HitCurve:
    """Hits of least recently used at every capacity: of all requests, or of those kept."""

    prompts: PromptBlocks
    touch_from: PromptEnd
    reuses: Reuses

    @cached_property
    def hit_blocks(self) -> Steps:
        """Hits in blocks."""
        r = self.reuses
        ramp = r.step == 1
        return Steps(
            Ramps(r.capacity[ramp], r.blocks[ramp], np.ones(int(ramp.sum()), np.int64)),
            Jumps(r.capacity[~ramp], r.blocks[~ramp]),
        )

    @cached_property
    def hit_tokens(self) -> Steps:
        """Hits in tokens: a block beyond the end of its prompt's tokens counts the tokens it has."""
        r, size = self.reuses, self.prompts.block_size_tokens
        tokens = self.prompts.trace.input_tokens[r.request]
        full = np.clip(tokens // size - r.offset, 0, r.blocks)
        partial = (full < r.blocks) & (r.offset + full == tokens // size) & (tokens % size > 0)
        ramp = r.step == 1
        whole = np.full(len(full), size, np.int64)
        return Steps(
            Ramps(r.capacity[ramp], full[ramp], whole[ramp]),
            Jumps(
                np.concatenate([r.capacity[~ramp], (r.capacity + r.step * full)[partial]]),
                np.concatenate([(full * size)[~ramp], (tokens % size)[partial]]),
            ),
        )

    @cached_property
    def distinct_blocks(self) -> int:
        """Return the number of blocks of an unbounded cache at the end."""
        return self.prompts.references - self.reused_blocks

    @cached_property
    def reused_blocks(self) -> int:
        """Return the references to a block seen before, including those that may not count as hits."""
        hits = self.prompts.native.belady(2**63).hits
        return int(hits.sum(dtype=np.int64))


def hit_curve(prompts: PromptBlocks, touch_from: PromptEnd) -> HitCurve:
    """Return the curve of a trace, from one pass.

    ``tail``: blocks are released deepest first and the cache evicts leaves. ``root``: a plain recency list
    touched root first. Raises ``TraceError`` for a trace that is no prefix tree.
    """
    try:
        columns = prompts.native.reuses(prompts.limits, touch_from)
    except ValueError as error:
        raise TraceError(str(error), where=prompts.trace.source) from None
    names = ("request", "capacity", "blocks", "step", "before")
    request, capacity, blocks, step, before = (getattr(columns, name).astype(np.int64) for name in names)
    ends = np.cumsum(blocks)
    first = np.searchsorted(request, request, side="left")
    offset = ends - blocks - (ends - blocks)[first] if len(blocks) else blocks
    return HitCurve(prompts, touch_from, Reuses(request, capacity, blocks, step, before, offset))
