"""Named streams of random numbers, and the process's root seed, from which generators are derived by name."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Final

from kvcache_sim._core import Sha256
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng.generator import RandomGenerator

if TYPE_CHECKING:
    import numpy as np


class RootSeedError(UsageError, RuntimeError):
    """A root seed that is missing, or set twice to different values."""


class _Unset:
    """The type of the marker "no root seed yet"; None means "no seed: not reproducible"."""


_UNSET: Final = _Unset()
_root: int | _Unset | None = _UNSET


def init(seed: int | None) -> None:
    """Set the root seed of this process; call it once at the start of each process.

    ``seed`` is an integer from 0 on, or None for generators that are not reproducible. Setting the same seed
    again changes nothing, so a forked worker may call it too. A different seed raises `RootSeedError`,
    because existing generators were derived from the first one. A seed of another type or below 0 raises
    `UsageError`.
    """
    global _root
    wanted = None if seed is None else _checked(seed)
    if not isinstance(_root, _Unset) and _root != wanted:
        raise RootSeedError(
            "the root seed is set already", where="rng.init", got=str(wanted), expected=str(_root)
        )
    _root = wanted


def derive(identifier: str) -> RandomGenerator:
    """Return the generator of a name, seeded by `derive_seed` of the root, independent of the order of calls.

    Each call returns a new generator in its initial state. Under ``init(None)`` the generator has no seed and
    draws from the system's entropy. Raises `RootSeedError` before `init`.
    """
    if isinstance(_root, _Unset):
        raise RootSeedError("no root seed yet", where="rng.derive", hint="call rng.init(seed) once at start")
    return RandomGenerator(None if _root is None else derive_seed(_root, identifier))


def reset() -> None:
    """Clear the root seed, so that `init` may set another one; for tests and notebooks."""
    global _root
    _root = _UNSET


def _checked(seed: int) -> int:
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise UsageError(
            "not a seed", where="rng.init", got=repr(seed), expected="an integer from 0 on, or None"
        )
    if index(seed) < 0:
        raise UsageError(
            "not a seed", where="rng.init", got=str(seed), expected="an integer from 0 on, or None"
        )
    return index(seed)


def derive_seed(root_seed: int, identifier: str) -> int:
    """Return the child seed of ``root_seed`` for a name: the first 8 bytes of SHA-256 (seed 002).

    The text hashed is ``"{root}:{identifier}"``; the bytes are read big-endian, so the result is in [0, 2⁶⁴).
    """
    digest = Sha256(f"{root_seed}:{identifier}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def stream(root_seed: int, identifier: str) -> np.random.Generator:
    """Return the numpy generator (PCG64) of a named stream; equal arguments give equal draws anywhere."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive_seed(root_seed, identifier)))


def repeat_seed(seed: int, repeat: int) -> int:
    """Return the seed of a repeat (1, 2, …): common random numbers, as it does not depend on the settings.

    Repeat 0 uses the scenario's own seed, without this function.
    """
    return derive_seed(seed, f"sweep.repeat:{repeat}") >> 1  # a scenario's seed is below 2⁶³
