"""Calls of the Python API: arguments checked by their annotations, every failure a ``KvsimError``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, formatannotation, signature
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from kvcache_sim.base.errors import InvariantError, UsageError, panics_as_errors, refusal_of
from kvcache_sim.base.spelling import close_matches

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises ``UsageError`` for arguments of a wrong type, and no untyped error."""

    @wraps(function)
    def call(*positional: P.args, **named: P.kwargs) -> R:
        try:
            _check(function, positional, named)
            with panics_as_errors():
                return function(*positional, **named)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is error:
                raise
            raise refusal or InvariantError(f"{type(error).__name__}: {error}") from error

    return call


def _check(function: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> None:
    takes = signature(function).parameters
    try:
        bound = signature(function).bind(*positional, **named)
    except TypeError as error:
        near = [close for name in named if name not in takes for close in close_matches(name, takes, n=1)]
        hint = f"did you mean {near[0]!r}?" if near else ""
        raise UsageError(str(error), where=function.__name__, hint=hint) from None
    hints = get_type_hints(function)
    for name, value in bound.arguments.items():
        kind = takes[name].kind
        if kind is Parameter.VAR_KEYWORD or name not in hints:
            continue
        values = value if kind is Parameter.VAR_POSITIONAL else [value]
        for one in values:
            check_type(name, one, hints[name])


def check_type(name: str, value: object, hint: Any) -> None:
    """Raise UsageError for a value that a type hint does not allow."""
    if not _fits(value, hint):
        got = f"{value!r:.80} of type {type(value).__name__}"
        expected = re.sub(
            r"\b(?:typing|collections\.abc|[a-z_]+(?:\.[a-z_]+)+)\.", "", formatannotation(hint)
        )
        raise UsageError("not usable here", where=name, got=got, expected=expected)


def at_least_one(**counts: int) -> None:
    """Raise UsageError for a count below 1, by its argument."""
    for name, count in counts.items():
        if count < 1:
            raise UsageError("not usable here", where=name, got=str(count), expected="1 or more")


def _fits(value: Any, hint: Any) -> bool:
    origin, arms = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return value in arms
    inside: Any = value
    if origin in (Union, UnionType):
        return any(_fits(value, arm) for arm in arms)
    if origin is Any:
        return True
    if origin in (int, float):
        return isinstance(value, Integral if origin is int else Real) and not isinstance(value, bool)
    if not isinstance(value, origin) or (origin in (Sequence, Iterable) and isinstance(value, str | bytes)):
        return False
    if origin in (Sequence, list):
        return all(_fits(item, arms[0]) for item in inside)
    if origin in (Mapping, dict):
        return all(_fits(k, arms[0]) and _fits(v, arms[1]) for k, v in inside.items())
    return True
