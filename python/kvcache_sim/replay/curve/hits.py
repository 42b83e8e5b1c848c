"""The curve of least recently used from one pass over the trace: stack distances (Mattson et al. 1970)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import CurveStack, HitSteps
from kvcache_sim.base.errors import TraceError
from kvcache_sim.replay.curve.steps import Int64s
from kvcache_sim.replay.prompt_blocks import PromptBlocks, refuse_outputs
from kvcache_sim.replay.request import PromptEnd, ReplayRequest
from kvcache_sim.workload.readers.stream import RowStream


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


class CurveTotals(NamedTuple):
    """The trace of a curve, and the references and prompt tokens that its hits are a share of."""

    source: str
    sha256: str
    requests: int
    references: int
    input_tokens: int


class TokenSteps(NamedTuple):
    """Hits in tokens: those of whole blocks, less what partial blocks lack."""

    blocks: HitSteps
    short: HitSteps
    block_size: int

    def at(self, capacity: Int64s) -> Int64s:
        """Return the hits at each capacity."""
        return self.blocks.at(capacity) * self.block_size - self.short.at(capacity)

    @property
    def top(self) -> int:
        """Return the hits at any large capacity."""
        return self.blocks.top * self.block_size - self.short.top


class StreamedCurve(NamedTuple):
    """Hits of least recently used at every capacity, of a trace that was read row by row."""

    totals: CurveTotals
    hit_blocks: HitSteps
    hit_tokens: TokenSteps
    distinct_blocks: int


@dataclass(frozen=True)
class HitCurve:
    """Hits of least recently used at every capacity: of all requests, or of those kept."""

    prompts: PromptBlocks
    touch_from: PromptEnd
    reuses: Reuses

    @cached_property
    def totals(self) -> CurveTotals:
        """The references and tokens that the curve is a share of."""
        return totals_of(self.prompts)

    @cached_property
    def hit_blocks(self) -> HitSteps:
        """Hits in blocks."""
        r, steps = self.reuses, HitSteps()
        ramp, ones = r.step == 1, np.ones(len(r.step), np.int64)
        steps.add(r.capacity[ramp], r.blocks[ramp], ones[ramp])
        steps.add(r.capacity[~ramp], ones[~ramp], r.blocks[~ramp])
        return steps

    @cached_property
    def hit_tokens(self) -> HitSteps:
        """Hits in tokens: a block beyond the end of its prompt's tokens counts the tokens it has."""
        r, size, steps = self.reuses, self.prompts.block_size_tokens, HitSteps()
        tokens = self.prompts.trace.input_tokens[r.request]
        full = np.clip(tokens // size - r.offset, 0, r.blocks)
        partial = (full < r.blocks) & (r.offset + full == tokens // size) & (tokens % size > 0)
        ramp, ones = r.step == 1, np.ones(len(full), np.int64)
        steps.add(r.capacity[ramp], full[ramp], ones[ramp] * size)
        steps.add(r.capacity[~ramp], ones[~ramp], (full * size)[~ramp])
        steps.add((r.capacity + r.step * full)[partial], ones[partial], (tokens % size)[partial])
        return steps

    @cached_property
    def distinct_blocks(self) -> int:
        """Return the number of blocks of an unbounded cache at the end."""
        return self.prompts.references - self.reused_blocks

    @cached_property
    def reused_blocks(self) -> int:
        """Return the references to a block seen before, including those that may not count as hits."""
        hits = self.prompts.native.belady(2**63).hits
        return int(hits.sum(dtype=np.int64))


def totals_of(prompts: PromptBlocks) -> CurveTotals:
    """Return what the hits of a trace in memory are a share of."""
    trace = prompts.trace
    tokens = int(trace.input_tokens.sum())
    return CurveTotals(trace.source, trace.sha256, len(trace), prompts.references, tokens)


def output_less(request: ReplayRequest) -> int | None:
    """Return the output tokens whose KV a request does not leave, None if it leaves none of them."""
    refuse_outputs(request)
    return {"prompt": None, "computed": 1, "all": 0}[request.outputs]


def streamed_curve(rows: RowStream, request: ReplayRequest) -> StreamedCurve:
    """Return the curve of a trace from its rows, in memory by distinct blocks; touch order is tail first.

    Only the settings of ``request`` are read. Raises ``NeedsWhole`` where a row cannot be replayed alone.
    """
    size = request.block_size_tokens
    stack = CurveStack(size, request.last_partial == "keep", output_less(request))
    rows.feed(stack)
    requests, tokens, references, reused = stack.totals
    hits, short = stack.take()
    totals = CurveTotals(rows.source, rows.sha256, requests, references, tokens)
    return StreamedCurve(totals, hits, TokenSteps(hits, short, size), references - reused)


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
