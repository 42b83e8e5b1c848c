"""The generator that is re-seeded for each hash id, so that any worker in any order draws the same.

The seed of an id is the head of ``SHA-256("{base}:{scope}:{id}")``. Seed 002's document has the scope
``hash_id``; the released AIPerf 0.13 has the trace's id there, the first 16 hex digits of its SHA-256.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, SupportsIndex

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng.generator import RandomGenerator
from kvcache_sim.base.rng.root import derive_seed

if TYPE_CHECKING:
    import numpy as np

#: The scope of seed 002's formula.
DOCUMENT_SCOPE = "hash_id"

HashId = SupportsIndex | str


class HashIdTypeError(UsageError, TypeError):
    """A hash id that is neither an integer nor a string."""


class NumpyForbiddenError(UsageError, RuntimeError):
    """A numpy draw from a generator whose numpy half was not re-seeded."""


def hash_id_text(hash_id: HashId) -> str:
    """Return the text under which an id is hashed; equal texts are the same id.

    An integer of any size or sign (numpy's too) is its decimal digits; a string is itself, so ``"1"`` is 1
    and ``"01"`` is not. ``True``, ``1.0``, None and all other types raise `HashIdTypeError`: a dict treats
    ``True`` and ``1.0`` as 1 while their texts differ, so the result would depend on the order of calls.
    """
    if isinstance(hash_id, str):
        return hash_id
    if isinstance(hash_id, bool) or not hasattr(hash_id, "__index__"):
        raise HashIdTypeError("not a hash id", got=repr(hash_id), expected="an integer or a string")
    return str(index(hash_id))


def hash_id_seed(base_seed: int, hash_id: HashId, scope: str = DOCUMENT_SCOPE) -> int:
    """Return the seed of an id, in [0, 2⁶⁴): the head of ``SHA-256("{base}:{scope}:{id}")``, big-endian.

    ``scope`` is ``hash_id`` (seed 002) or a trace's id, which may be empty (AIPerf 0.13).
    """
    return derive_seed(base_seed, f"{scope}:{hash_id_text(hash_id)}")


class HashIdRandomGenerator(RandomGenerator):
    """A `RandomGenerator` that restarts from a separate seed for each hash id.

    Without ``trace_id`` it follows seed 002's document: `reseed_for_hash_id` re-seeds Python's and numpy's
    generators, and ``seed`` is then the derived seed. With a ``trace_id`` (``""`` too) it follows AIPerf:
    only Python's generator is re-seeded, ``seed`` stays the base, and numpy's draws then raise
    `NumpyForbiddenError`. ``base_seed`` never changes: another process with the same base draws the same.
    """

    def __init__(self, base_seed: int, trace_id: str | None = None) -> None:
        super().__init__(base_seed)
        self._base_seed = base_seed
        self._trace_id = trace_id
        self._numpy_forbidden = False

    @classmethod
    def from_base_rng(cls, base_rng: RandomGenerator, trace_id: str | None = None) -> HashIdRandomGenerator:
        """Return a generator based on the seed of ``base_rng``, which is not advanced.

        A base without a seed draws the base seed from its own random numbers: stable inside this generator,
        different in the next.
        """
        base_seed = base_rng.seed
        return cls(base_rng.getrandbits(64) if base_seed is None else base_seed, trace_id)

    @property
    def base_seed(self) -> int:
        """The seed that the ids' seeds are derived from."""
        return self._base_seed

    @property
    def scope(self) -> str:
        """The middle part of the text that is hashed."""
        return DOCUMENT_SCOPE if self._trace_id is None else self._trace_id

    def reseed_for_hash_id(self, hash_id: HashId) -> None:
        """Restart from the seed of ``hash_id``; earlier draws have no influence.

        Raises `HashIdTypeError` (see `hash_id_text`). Cost: one SHA-256 and one seeding of MT19937.
        """
        derived_seed = hash_id_seed(self._base_seed, hash_id, self.scope)
        self._python_rng.seed(derived_seed)
        if self._trace_id is None:
            self._seed = derived_seed
            self._made_numpy_rng = None  # made from the new seed when first drawn from
        else:
            self._numpy_forbidden = True

    @property
    def _numpy_rng(self) -> np.random.Generator:
        if self._numpy_forbidden:
            raise NumpyForbiddenError(
                "numpy's generator is not re-seeded under a trace id", hint="draw with Python's methods"
            )
        return super()._numpy_rng

    @_numpy_rng.setter
    def _numpy_rng(self, generator: np.random.Generator) -> None:
        self._made_numpy_rng = generator
