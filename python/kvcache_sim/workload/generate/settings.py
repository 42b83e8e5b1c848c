"""Settings common to all workloads, with parsing and validation of their fields."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.units import parse_time_ns
from kvcache_sim.workload.generate.arrivals import Arrivals, Poisson, arrivals_from
from kvcache_sim.workload.generate.chains import Chains, shared_texts
from kvcache_sim.workload.generate.chunk import Chunk, Draws
from kvcache_sim.workload.generate.lengths import Lengths, lengths_from

T = TypeVar("T")
Parser = Callable[[str, Any], Any]


class CheckedFields:
    """Base of the settings dataclasses: every field is parsed when the object is constructed.

    Raises UsageError naming the field, as ``workload.turns``.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            parse: Parser = item.metadata["parse"]
            value = parse(f"workload.{item.name}", getattr(self, item.name))
            object.__setattr__(self, item.name, value)


def from_mapping(cls: type[T], mapping: Mapping[str, Any]) -> T:
    """Return the settings of a mapping (a part of a scenario, or options).

    Raises UsageError for an unknown key, with the nearest known keys, and for a value out of range.
    """
    known = [item.name for item in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in mapping:
        if key not in known:
            near = close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise UsageError("unknown key", where=f"workload.{key}", hint=hint)
    return cls(**mapping)


def _field(default: Any, parse: Parser) -> Any:
    return dataclasses.field(default=default, metadata={"parse": parse})


def count(default: int, minimum: int = 1, maximum: int = 2**31 - 1) -> Any:
    """Return a field for a whole number from ``minimum`` on."""

    def parse(where: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise UsageError(
                "out of range" if isinstance(value, int) else "not a whole number",
                where=where,
                got=repr(value),
                expected=f"a whole number ≥ {minimum}" if maximum > 2**30 else f"{minimum} … {maximum}",
            )
        return value

    return _field(default, parse)


def number(default: float | None, low: float, high: float, optional: bool = False) -> Any:
    """Return a field for a number in [low, high]; ``optional`` also takes None."""

    def parse(where: str, value: Any) -> float | None:
        if optional and value is None:
            return None
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not good or not low <= value <= high:
            raise UsageError(
                "out of range", where=where, got=repr(value), expected=f"a number from {low:g} to {high:g}"
            )
        return float(value)

    return _field(default, parse)


def probability(default: float) -> Any:
    """Return a field for a probability."""
    return number(default, 0.0, 1.0)


def choice(default: str, options: tuple[str, ...]) -> Any:
    """Return a field for one of several words."""

    def parse(where: str, value: Any) -> str:
        if value not in options:
            raise UsageError("unknown choice", where=where, got=repr(value), expected=" | ".join(options))
        return str(value)

    return _field(default, parse)


def tokens(default: Any, minimum: int = 1) -> Any:
    """Return a field for a distribution of token counts, each at least ``minimum``."""

    def parse(where: str, value: Any) -> Lengths:
        return lengths_from(where, value, minimum)

    return _field(default, parse)


def times(default: Any) -> Any:
    """Return a field for a distribution of times ≥ 0, written with their units."""

    def parse(where: str, value: Any) -> Lengths:
        return lengths_from(where, value, 0, _time_ns)

    return _field(default, parse)


def arrival_process(default: Any) -> Any:
    """Return a field for an arrival process."""
    return _field(default, arrivals_from)


def _time_ns(where: str, value: Any) -> int:
    if not isinstance(value, str):
        raise UsageError(
            "a time needs its unit", where=where, got=repr(value), expected="a time such as 250us, 3s"
        )
    try:
        return parse_time_ns(value)
    except UsageError as error:
        raise UsageError(error.what, where=where, got=error.got, expected=error.expected) from None


@dataclass(frozen=True, slots=True)
class Workload(CheckedFields):
    """Settings common to all kinds; a kind adds its own and defines its chunks.

    In open loop ``arrivals`` start the units, and later turns follow after their think times. In closed loop
    a turn arrives its think time after the previous answer. With ``concurrency`` N the first N units start at
    the arrivals, and unit i starts when unit i − N has ended: N users. ``concurrency`` 0 starts every unit at
    its arrival. Each unit belongs to one of ``tenants`` tenants, drawn uniformly; two tenants never share a
    block, as with different cache salts.
    """

    requests: int = count(1000, maximum=10**9)
    block_size: int = count(512, maximum=2**20)
    arrivals: Arrivals = arrival_process(Poisson(1.0))
    output_tokens: Lengths = tokens(128)
    loop: str = choice("open", ("open", "closed"))
    concurrency: int = count(0, minimum=0)
    tenants: int = count(1, maximum=10**6)

    def __post_init__(self) -> None:
        # A slotted dataclass is created twice, so the zero-argument form of super() does not find this class.
        CheckedFields.__post_init__(self)
        if self.loop == "open" and self.concurrency:
            raise UsageError(
                "has no effect in open loop", where="workload.concurrency", hint="set workload.loop: closed"
            )

        if self.tenants > 1 and not self.shares:
            what = "has no effect: no two units share a block anyway"
            raise UsageError(what, where="workload.tenants", got=str(self.tenants))

    @property
    def shares(self) -> bool:
        """True if two units may contain the same block."""
        return True

    def shared(self, seed: int) -> tuple[Chains, int]:
        """Return the texts that all chunks share, and the first free id after them."""
        return shared_texts(self.shared_tokens(seed), self.block_size)

    def shared_tokens(self, seed: int) -> NDArray[np.int64]:
        """Return the lengths of the texts that all chunks share: a system prompt, if a kind has one."""
        del seed
        system_prompt_tokens: int | None = getattr(self, "system_prompt_tokens", None)
        return np.array([] if system_prompt_tokens is None else [system_prompt_tokens], np.int64)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return one chunk, a function of the seed and the chunk's index only."""
        raise NotImplementedError
