"""Hits that no policy can exceed: of an unbounded cache, and of Belady's policy at the same size."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvcache_sim.replay.prompt_blocks import PromptBlocks


def share(prompts: PromptBlocks, hits: Any) -> dict[str, Any]:
    """Return the hits of a replay in blocks and tokens, and as shares of all blocks and prompt tokens."""
    counted = np.minimum(hits, prompts.limits)
    blocks, tokens = int(counted.sum(dtype=np.int64)), int(prompts.hit_tokens(counted).sum())
    return {
        "hit_blocks": blocks,
        "block_hit_rate": blocks / max(1, prompts.references),
        "hit_tokens": tokens,
        "hit_rate": tokens / max(1, int(prompts.trace.input_tokens.sum())),
    }


def upper_bounds(prompts: PromptBlocks, capacity_blocks: int) -> dict[str, Any]:
    """Return the hits of an unbounded cache and of Belady's at this capacity.

    Belady's rule here: the farthest next use goes first, of equals the deepest; new blocks may be passed
    over; what stays is prefix-closed.
    """
    return {
        "unbounded": share(prompts, prompts.native.belady(2**63).hits),
        "belady": share(prompts, prompts.native.belady(capacity_blocks).hits),
    }
