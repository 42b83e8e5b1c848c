"""Randomness: every random number comes from one seed and a name (seed 002).

- `root`: named streams of a seed held by the caller, as simulations use them, and the process's own
  root seed, set once by `init`, with the generators derived from it.
- `generator`: `RandomGenerator`, Python's and numpy's generators behind one seed.
- `hash_id`: `HashIdRandomGenerator`, re-seeded for each hash id.
"""

from kvcache_sim.base.rng.generator import RandomGenerator
from kvcache_sim.base.rng.hash_id import DOCUMENT_SCOPE, HashIdRandomGenerator, hash_id_seed, hash_id_text
from kvcache_sim.base.rng.root import derive, derive_seed, init, reset, stream

__all__ = [
    "DOCUMENT_SCOPE",
    "HashIdRandomGenerator",
    "RandomGenerator",
    "derive",
    "derive_seed",
    "hash_id_seed",
    "hash_id_text",
    "init",
    "reset",
    "stream",
]
