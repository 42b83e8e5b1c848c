"""The digest under which the oracles keep the hits of each request."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from kvcache_sim.replay.cut import Cut


def hit_tokens_sha256(cut: Cut, hits: Any) -> str:
    """Return the SHA-256 of the hit tokens of each request as decimals joined by newlines."""
    tokens = cut.hit_tokens(np.minimum(hits, cut.limits))
    return hashlib.sha256("\n".join(map(str, tokens.tolist())).encode()).hexdigest()
