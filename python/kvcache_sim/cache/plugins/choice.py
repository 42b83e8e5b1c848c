"""A policy by name: a row of its registry, or somebody's own class, ``file.py:Name``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvcache_sim.cache.plugins.load import load_plugin
from kvcache_sim.errors import UsageError


def make_policy(registry: Mapping[str, Callable[..., Any]], name: str, *arguments: Any) -> Any:
    """Return the policy that ``name`` means, made with the arguments that its registry's rows take.

    Raises UsageError for a name that is neither a row nor ``file.py:Name``.
    """
    if name in registry:
        return registry[name](*arguments)
    if ":" not in name:
        raise UsageError("no such policy", got=repr(name), expected=" | ".join(registry) + " | file.py:Name")
    plugin = load_plugin(name)
    return plugin.target(*arguments, **plugin.arguments)
