"""Python's and numpy's generators with one seed and one interface (seed 002, RandomGenerator)."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")
Size = int | tuple[int, ...] | None


class RandomGenerator:
    """A source of random numbers: ``random.Random(seed)`` and ``numpy.random.default_rng(seed)`` in one.

    The two advance independently. ``seed`` None uses the system's entropy. Not to be shared between threads;
    a pickled copy continues from the original's state. numpy is imported at the first draw that needs it.
    """

    def __init__(self, seed: int | None = None) -> None:
        from random import Random  # a run that draws nothing makes no generator

        self._seed = seed
        self._python_rng = Random(seed)
        self._made_numpy_rng: np.random.Generator | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(seed={self.seed})"

    @property
    def seed(self) -> int | None:
        """The seed of both generators; None without a seed."""
        return self._seed

    @property
    def _numpy_rng(self) -> np.random.Generator:
        if self._made_numpy_rng is None:
            import numpy as np

            self._made_numpy_rng = np.random.default_rng(self._seed)
        return self._made_numpy_rng

    @_numpy_rng.setter
    def _numpy_rng(self, generator: np.random.Generator) -> None:
        self._made_numpy_rng = generator

    def random(self) -> float:
        """Return a float in [0, 1)."""
        return self._python_rng.random()

    def uniform(self, a: float, b: float) -> float:
        """Return a float between ``a`` and ``b``."""
        return self._python_rng.uniform(a, b)

    def choice(self, seq: Sequence[T]) -> T:
        """Return one element; IndexError where there is none."""
        return self._python_rng.choice(seq)

    def choices(self, population: Sequence[T], k: int = 1) -> list[T]:
        """Return ``k`` independently drawn elements."""
        return self._python_rng.choices(population, k=k)

    def sample(self, population: Sequence[T], k: int) -> list[T]:
        """Return ``k`` different elements; ValueError if there are fewer."""
        return self._python_rng.sample(population, k)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return an element of ``range(start)`` or ``range(start, stop, step)``."""
        return self._python_rng.randrange(start, stop, step)

    def randint(self, a: int, b: int) -> int:
        """Return an integer from ``a`` to ``b``, both included."""
        return self._python_rng.randint(a, b)

    def getrandbits(self, k: int) -> int:
        """Return an integer of ``k`` random bits."""
        return self._python_rng.getrandbits(k)

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """Return a draw of the normal distribution."""
        return self._python_rng.gauss(mu, sigma)

    def expovariate(self, lambd: float) -> float:
        """Return a draw of the exponential distribution of mean ``1 / lambd``."""
        return self._python_rng.expovariate(lambd)

    def gammavariate(self, alpha: float, beta: float) -> float:
        """Return a draw of the gamma distribution of mean ``alpha * beta``."""
        return self._python_rng.gammavariate(alpha, beta)

    def integers(self, low: int, high: int | None = None, size: Size = None) -> Any:
        """Return numpy's integers (int64) in [low, high), or [0, low) without ``high``."""
        return self._numpy_rng.integers(low, high, size=size)

    def normal(self, loc: float = 0.0, scale: float = 1.0, size: Size = None) -> Any:
        """Return numpy's draws (float64) of the normal distribution."""
        return self._numpy_rng.normal(loc, scale, size)

    def numpy_choice(self, a: ArrayLike, size: Any = None, p: Any = None, replace: bool = True) -> Any:
        """Return numpy's draws from ``a`` (from ``range(a)`` for an integer), ``p`` their shares."""
        return self._numpy_rng.choice(a, size=size, p=p, replace=replace)

    def shuffle(self, x: MutableSequence[Any] | NDArray[Any]) -> None:
        """Shuffle in place, with numpy's generator."""
        self._numpy_rng.shuffle(x)

    def random_batch(self, size: int) -> NDArray[np.float64]:
        """Return ``size`` floats in [0, 1) from numpy's generator."""
        return self._numpy_rng.random(size)
