"""The check of a machine's store while it runs (``--check full``)."""

from __future__ import annotations

from kvcache_sim.cache.store import GpuStore
from kvcache_sim.errors import InvariantError


def check_store(store: GpuStore, machine: int, now_ns: int) -> None:
    """Recompute a store's state from scratch; InvariantError naming machine and time where it differs."""
    try:
        store.check()
    except RuntimeError as broken:
        raise InvariantError(str(broken), f"machine {machine} at {now_ns} ns") from broken
