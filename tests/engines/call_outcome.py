"""Outcome of a call to the core: its answer, or the line of its refusal."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from kvcache_sim.base.errors import StoreError


def call(store: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    """Return the store's answer to the call, or its refusal as text."""
    try:
        return getattr(store, name)(*arguments)
    except StoreError as refused:
        return str(refused)


def each_is_refused(calls: Iterable[Callable[[], Any]]) -> None:
    """Check that each call is refused in words, and none panics."""
    for number, refused in enumerate(calls):
        with pytest.raises((ValueError, StoreError), match=r"\w"):
            pytest.fail(f"call {number} answered {refused()!r}")
