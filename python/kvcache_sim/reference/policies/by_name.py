"""The reference of each eviction policy, found by its name: ``NAME.py`` here, whose ``make`` makes it."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from kvcache_sim.errors import UsageError
from kvcache_sim.policies.resolve import row_of
from kvcache_sim.policies.settings import Variant
from kvcache_sim.reference.policies.block import Policy


def make_policy(variant: Variant, capacity: int) -> Policy:
    """Return the reference of a policy with its setting; raises ``UsageError`` for a ceiling."""
    row = row_of(variant.name)
    if not row.evicts:
        raise UsageError("no eviction policy, so without a reference", where="--backend", got=variant.name)
    return cast(Policy, import_module(f"{__package__}.{row.module}").make(variant, capacity))
