"""What the reference store refuses: the same lines as the native one, each before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar

from kvcache_sim.errors import StoreError

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")

#: The numbers of leases, moves and holds: no two stores of a process ever give out the same.
HANDLES = count(1 << 32)


def refuse(what: str, expected: str) -> StoreError:
    """Return the error of a call that cannot be obeyed."""
    return StoreError(what, "store", "", expected)


def numbered(call: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Refuse numbers that no request, block, tier, handle or time can have."""

    @wraps(call)
    def checked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not all(map(_is_number, (*args, *kwargs.values()))):
            raise refuse("a number is out of range", "0 to 2^64 - 1")
        return call(self, *args, **kwargs)

    return checked


def in_order(times: tuple[int, int]) -> None:
    """Refuse times of a first layer and of all where the first comes last."""
    if times[0] > times[1]:
        raise refuse("ready before its first layer", "a first layer no later than the whole")


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return 0 <= value < 1 << 64
    return all(map(_is_number, value)) if isinstance(value, (tuple, list)) else True
