"""How a transform checks its own output: what it promises, said where it is broken."""

from __future__ import annotations

import numpy as np

from kvcache_sim.errors import InvariantError
from kvcache_sim.workload.trace import Trace


def require(kept: bool, transform: str, promise: str) -> None:
    """Raise ``InvariantError`` naming the promise where a transform's output breaks it."""
    if not kept:
        raise InvariantError(f"trace {transform} broke its invariant: {promise}")


def same_requests(a: Trace, b: Trace) -> bool:
    """Return whether two traces have the same lengths, sharing of blocks, sessions and turns, row by row."""
    return all(
        np.array_equal(getattr(a, column), getattr(b, column))
        for column in ("input_tokens", "output_tokens", "id_offsets", "block_ids", "session", "turn")
    )
