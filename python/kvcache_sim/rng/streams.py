"""Named random streams: every random number of a run comes from one seed and a name."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive_seed(root_seed: int, identifier: str) -> int:
    """Return the child seed of ``root_seed`` for a name: the first 8 bytes of SHA-256 (seed 002).

    The text hashed is ``"{root}:{identifier}"``; the bytes are read big-endian, so the result is in [0, 2⁶⁴).
    """
    digest = hashlib.sha256(f"{root_seed}:{identifier}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def stream(root_seed: int, identifier: str) -> np.random.Generator:
    """Return the numpy generator (PCG64) of a named stream; equal arguments give equal draws anywhere."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive_seed(root_seed, identifier)))


def repeat_seed(seed: int, repeat: int) -> int:
    """Return the seed of a repeat (1, 2, …): common random numbers, as it does not depend on the settings.

    Repeat 0 keeps the scenario's own seed and is not asked for here.
    """
    return derive_seed(seed, f"sweep.repeat:{repeat}") >> 1  # a scenario's seed is below 2⁶³
