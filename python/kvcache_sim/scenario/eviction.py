"""Eviction policies that a scenario may name, by its cache semantics."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from kvcache_sim.cache.store_kinds import store_kind
from kvcache_sim.errors import UsageError
from kvcache_sim.policies.plugins.permission import may_load
from kvcache_sim.policies.resolve import resolve_policy
from kvcache_sim.policies.tier_orders import choose_eviction
from kvcache_sim.scenario.policy_names import absolute_plugin
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.validation import at_location
from kvcache_sim.scenario.yaml_tree import Path as KeyPath
from kvcache_sim.scenario.yaml_tree import Tree
from kvcache_sim.spelling import close_matches
from kvcache_sim.tiers import TIERS


def with_absolute_eviction(tree: Tree, directory: Path) -> None:
    """Make the files of eviction plug-ins absolute, like the files of other plug-in kinds."""
    for path, section in _named(tree.values):
        section["policy"] = absolute_plugin(section["policy"], path, tree, directory)


def refuse_unknown_eviction(model: ScenarioModel, tree: Tree) -> None:
    """Raise UsageError for an eviction policy unknown, broken, or not part of ``cache.semantics``."""
    known = store_kind(model.cache).policies
    name = model.cache.policy
    if known is None:
        names = {path: section["policy"] for path, section in _named(tree.values)}
        for path, text in names.items():
            if not may_load() and _is_plugin(text):
                continue  # a name of a run that is read
            at_location(tree, path, partial(choose_eviction, text, model.cache.block_size))
    elif name not in known:
        close = close_matches(name, known, n=1)
        raise UsageError(
            f"cache.policy: no such policy under semantics {model.cache.semantics}",
            where=tree.location(("cache", "policy")),
            got=repr(name),
            expected=f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}",
        )


def eviction_plugins_of(tree: Tree) -> list[tuple[KeyPath, str]]:
    """Return (path, name) of every eviction policy that is a plug-in."""
    named = [(path, section["policy"]) for path, section in _named(tree.values)]
    return [(path, text) for path, text in named if _is_plugin(text)]


def _is_plugin(text: str) -> bool:
    try:
        return resolve_policy(text)[0] == "plugin"
    except UsageError:
        return False


def _named(values: dict[str, Any]) -> list[tuple[KeyPath, dict[Any, Any]]]:
    """Return (path, the mapping that holds it) of every eviction policy that is named."""
    sections: list[tuple[KeyPath, Any]] = [(("cache",), values.get("cache"))]
    cluster, machines = values.get("cluster"), values.get("machines")
    if isinstance(cluster, dict):
        sections.append((("cluster", "pool"), cluster.get("pool")))
    roots: list[tuple[KeyPath, Any]] = [((), values)]
    roots += [(("machines", k), own) for k, own in enumerate(machines)] if isinstance(machines, list) else []
    for root, inside in roots:
        tiers = inside.get("tiers") if isinstance(inside, dict) else None
        if isinstance(tiers, dict):
            sections += [((*root, "tiers", tier), tiers.get(tier)) for tier in TIERS]
    return [
        ((*path, "policy"), section)
        for path, section in sections
        if isinstance(section, dict) and isinstance(section.get("policy"), str)
    ]
