"""The digest under which the oracles keep the hits of each request."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from kvcache_sim.replay.prompt_blocks import PromptBlocks


def hit_tokens_sha256(prompts: PromptBlocks, hits: Any) -> str:
    """Return the SHA-256 of the hit tokens of each request as decimals joined by newlines."""
    tokens = prompts.hit_tokens(np.minimum(hits, prompts.limits))
    return hashlib.sha256("\n".join(map(str, tokens.tolist())).encode()).hexdigest()
