"""Distributions of token counts and times: constant, uniform, lognormal, empirical, from a trace."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value

#: Most tokens of a prompt or an answer.
MOST_TOKENS = 2**31 - 1


class Lengths:
    """A distribution of whole numbers: token counts, or times in ns."""

    __slots__ = ()
    min: int

    @property
    def least(self) -> int:
        """The smallest possible value."""
        return self.min

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws."""
        raise NotImplementedError


class Constant(Value, Lengths):
    """Always ``value``."""

    value: int

    @property
    def least(self) -> int:
        """The value."""
        return self.value

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Return ``size`` copies; draws nothing from the stream."""
        return np.full(size, self.value, np.int64)


class Uniform(Value, Lengths):
    """Whole numbers from ``min`` to ``max``, both included, with equal probability."""

    min: int
    max: int

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws."""
        return rng.integers(self.min, self.max, size, np.int64, endpoint=True)


class Lognormal(Value, Lengths):
    """exp(normal(ln ``median``, ``sigma``)), rounded, clipped to ``min`` … ``max``."""

    median: int
    sigma: float
    min: int
    max: int

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws."""
        drawn = np.exp(math.log(self.median) + self.sigma * rng.standard_normal(size))
        clipped: NDArray[np.int64] = np.rint(np.clip(drawn, self.min, self.max)).astype(np.int64)
        return clipped


class _Drawn(Lengths):
    """Draws with replacement from given values."""

    __slots__ = ()

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The values."""
        raise NotImplementedError

    @property
    def least(self) -> int:
        """The smallest of the values."""
        return int(self.numbers.min())

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Return ``size`` independent draws."""
        return self.numbers[rng.integers(0, len(self.numbers), size)]


class Empirical(Value, _Drawn):
    """Drawn with replacement from the values of a list (``values`` in a scenario)."""

    values: tuple[int, ...]

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The list."""
        return np.asarray(self.values, np.int64)


class FromTrace(Value, _Drawn):
    """Drawn with replacement from a column of a trace: ``input_tokens`` or ``output_tokens``."""

    path: str
    column: str

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The column."""
        return _column(self.path, self.column)


@lru_cache(maxsize=8)
def _column(path: str, column: str) -> NDArray[np.int64]:
    from kvcache_sim.workload.readers import ReadSettings, read_trace

    trace = read_trace(path, settings=ReadSettings(time_order="keep"))
    values: NDArray[np.int64] = getattr(trace, column)
    return values


#: Every distribution by its name in a scenario; its keys are its fields.
DISTRIBUTIONS: dict[str, type[Any]] = {
    "constant": Constant,
    "uniform": Uniform,
    "lognormal": Lognormal,
    "empirical": Empirical,
    "trace": FromTrace,
}


def whole(where: str, value: Any) -> int:
    """Return a value after checking that it is a whole number of at most ``MOST_TOKENS``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError("not a whole number", where=where, got=repr(value))
    if value > MOST_TOKENS:
        raise UsageError("out of range", where=where, got=str(value), expected=f"at most {MOST_TOKENS}")
    return value


def lengths_from(where: str, value: Any, minimum: int, read: Callable[[str, Any], int] = whole) -> Lengths:
    """Return the distribution of a bare value (constant) or of a mapping with ``kind``.

    ``read(where, value)`` converts one value into a whole number (times use a parser with units). Raises
    UsageError naming ``where`` for an unknown kind or key, a missing key, a distribution that can be less
    than ``minimum``, and swapped bounds.
    """
    made: Lengths
    if isinstance(value, Lengths):
        made = value
    elif not isinstance(value, Mapping):
        made = Constant(read(where, value))
    else:
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in DISTRIBUTIONS:
            raise UsageError(
                "unknown distribution",
                where=f"{where}.kind",
                got=repr(kind),
                expected=" | ".join(DISTRIBUTIONS),
            )
        keys = [item.name for item in dataclasses.fields(DISTRIBUTIONS[kind])]
        given = given_keys(where, kind, keys, {key: part for key, part in value.items() if key != "kind"})
        made = DISTRIBUTIONS[kind](**{k: _part(f"{where}.{k}", k, part, read) for k, part in given.items()})
    if made.least < minimum:
        raise UsageError("out of range", where=where, got=str(made.least), expected=f"at least {minimum}")
    if isinstance(made, Uniform | Lognormal) and made.min > made.max:
        raise UsageError("min above max", where=where, got=f"{made.min} > {made.max}")
    if isinstance(made, Lognormal) and not made.min <= made.median <= made.max:
        raise UsageError("median outside min and max", where=where, got=str(made.median))
    if isinstance(made, Lognormal) and made.median < 1:
        raise UsageError("median must be above zero", where=where, got=str(made.median))
    return made


def given_keys(where: str, kind: str, keys: Sequence[str], given: dict[str, Any]) -> dict[str, Any]:
    """Return the given keys of a kind; UsageError if they are not all of its keys."""
    if set(given) != set(keys):
        raise UsageError(
            f"keys of {kind}", where=where, got=", ".join(map(str, given)), expected=", ".join(keys)
        )
    return given


def file_name(where: str, value: Any) -> str:
    """Return the file name of a trace; UsageError if it is invalid."""
    if not isinstance(value, str):
        raise UsageError("not a file name", where=where, got=repr(value), expected="a trace file")
    return value


def _part(where: str, key: str, value: Any, read: Callable[[str, Any], int]) -> Any:
    if key == "sigma":
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10:
            raise UsageError("out of range", where=where, got=repr(value), expected="a number from 0 to 10")
        return float(value)
    if key == "path":
        return file_name(where, value)
    if key == "column":
        if value not in ("input_tokens", "output_tokens"):
            raise UsageError(
                "unknown column", where=where, got=repr(value), expected="input_tokens | output_tokens"
            )
        return value
    if key == "values":
        if not isinstance(value, list | tuple) or not value:
            raise UsageError("no values", where=where, got=repr(value), expected="a list of values")
        return tuple(read(where, one) for one in value)
    return read(where, value)
