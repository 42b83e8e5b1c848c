"""What an unbounded cache would find of each prompt, requests one after another without service time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.workload.trace import Trace


@dataclass(frozen=True, slots=True)
class UnboundedHits:
    """The leading run of each prompt that stood in an earlier one; a last partial block counts as a block."""

    blocks: NDArray[np.int64]
    tokens: NDArray[np.int64]
    #: The trace's own counts, for the rates.
    references: NDArray[np.int64]
    input_tokens: NDArray[np.int64]

    @property
    def block_rate(self) -> float:
        """Return the share of block references found."""
        return float(self.blocks.sum() / max(1, self.references.sum()))

    @property
    def token_rate(self) -> float:
        """Return the share of input tokens found."""
        return float(self.tokens.sum() / max(1, self.input_tokens.sum()))

    @property
    def request_mean_rate(self) -> float:
        """Return the mean over requests of the share of blocks found (a request without blocks counts 0)."""
        return float(np.mean(self.blocks / np.maximum(1, self.references))) if len(self.blocks) else 0.0


def unbounded_hits(trace: Trace) -> UnboundedHits:
    """Return the leading hits of every request. Cost: a few passes over the ids."""
    counts = np.diff(trace.id_offsets)
    row = np.repeat(np.arange(len(trace)), counts)
    first = np.empty(trace.distinct_ids, np.int64)
    first[trace.block_ids[::-1]] = row[::-1]  # the last write of an id is its first row
    misses = np.append(np.flatnonzero(first[trace.block_ids] == row), len(row))
    start = trace.id_offsets[:-1]
    leading = np.minimum(misses[np.searchsorted(misses, start)], trace.id_offsets[1:]) - start
    tokens = np.minimum(leading * trace.block_size, trace.input_tokens)
    return UnboundedHits(leading, tokens, counts, trace.input_tokens)
