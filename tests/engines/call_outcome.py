"""Outcome of a call to a store: its answer, or the line of its refusal."""

from typing import Any

from kvcache_sim.base.errors import StoreError


def call(store: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    """Return the store's answer to the call, or its refusal as text."""
    try:
        return getattr(store, name)(*arguments)
    except StoreError as refused:
        return str(refused)
