"""Policies that a scenario names: plug-ins' files made absolute, unknown and broken ones refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.tiers import TIERS
from kvcache_sim.cache.store_kinds import store_kind
from kvcache_sim.policies.plugins.choice import Kind
from kvcache_sim.policies.plugins.permission import may_load
from kvcache_sim.policies.resolve import resolve_policy
from kvcache_sim.policies.tier_orders import choose_eviction
from kvcache_sim.scenario.policy_kinds import POLICY_KINDS
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.yaml_tree import Path as KeyPath
from kvcache_sim.scenario.yaml_tree import Tree, at_location


def with_absolute_plugins(tree: Tree, directory: Path) -> None:
    """Make plug-in files absolute: relative to ``directory`` for names in the scenario, else to here.

    A run that is repeated elsewhere finds the files again.
    """
    for path, plugin in (*_policies(tree.values), *_eviction_policies(tree.values)):
        plugin[path[-1]] = _absolute_plugin(plugin[path[-1]], path, tree, directory)


def _absolute_plugin(text: str, path: KeyPath, tree: Tree, directory: Path) -> str:
    """Return the policy name at ``path``, with a plug-in's file made absolute."""
    location, colon, name = text.partition(".py:")
    adapter, between, file = location.rpartition(":")
    if not colon:
        return text
    base = Path.cwd() if tree.location(path).startswith("--set") else directory
    return f"{adapter}{between}{(base / file).absolute()}.py:{name}"


def refuse_unknown_policies(tree: Tree) -> None:
    """Raise UsageError for a policy that is neither built in nor a plug-in, with the location of its name."""
    for path, plugin in _policies(tree.values):
        at_location(tree, path, partial(_kind_of(path).refuse_unknown, plugin[path[-1]]))


def refuse_broken_plugins(tree: Tree) -> None:
    """Import every plug-in of the scenario; UsageError gives the location of its name and the error.

    Where a run is read nothing is imported.
    """
    named = plugins_of(tree)
    if named and may_load():
        for path, name in named:
            at_location(tree, path, partial(_kind_of(path).maker, name))


def plugins_of(tree: Tree) -> list[tuple[KeyPath, str]]:
    """Return (path, name) of every plug-in but those of eviction."""
    named = [(path, plugin[path[-1]]) for path, plugin in _policies(tree.values)]
    return [(path, name) for path, name in named if name not in _kind_of(path).names]


def _kind_of(path: KeyPath) -> Kind:
    setting = path[2:] if path[0] == "machines" else path
    return next(kind for key, kind in POLICY_KINDS.items() if setting[: len(key)] == key)


def _policies(values: dict[str, Any]) -> list[tuple[KeyPath, dict[Any, Any]]]:
    """Return (path, the mapping that holds it) of every policy that is named as text."""
    found: list[tuple[KeyPath, dict[Any, Any]]] = []
    machines = values.get("machines")
    roots: list[tuple[KeyPath, Any]] = [((), values)]
    roots += (
        [(("machines", k), machine) for k, machine in enumerate(machines)]
        if isinstance(machines, list)
        else []
    )
    for root, inside in roots:
        for setting in POLICY_KINDS:
            plugin: Any = inside
            for step in setting[:-1]:
                plugin = plugin.get(step) if isinstance(plugin, dict) else None
            if not isinstance(plugin, dict) or setting[-1] not in plugin:
                continue
            if root and setting[0] != "replica":
                continue  # refused by its own check
            value, path = plugin[setting[-1]], (*root, *setting)
            if isinstance(value, dict):
                found += [((*path, part), value) for part in value if isinstance(value[part], str)]
            elif isinstance(value, str):
                found.append((path, plugin))
    return found


def refuse_unknown_eviction(model: ScenarioModel, tree: Tree) -> None:
    """Raise UsageError for an eviction policy unknown, broken, or not part of ``cache.semantics``."""
    known = store_kind(model.cache).policies
    name = model.cache.policy
    if known is None:
        names = {path: section["policy"] for path, section in _eviction_policies(tree.values)}
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
    named = [(path, section["policy"]) for path, section in _eviction_policies(tree.values)]
    return [(path, text) for path, text in named if _is_plugin(text)]


def _is_plugin(text: str) -> bool:
    try:
        return resolve_policy(text)[0] == "plugin"
    except UsageError:
        return False


def _eviction_policies(values: dict[str, Any]) -> list[tuple[KeyPath, dict[Any, Any]]]:
    """Return (path, the mapping that holds it) of every eviction policy that is named."""
    sections: list[tuple[KeyPath, Any]] = [(("cache",), values.get("cache"))]
    cluster, machines = values.get("cluster"), values.get("machines")
    if isinstance(cluster, dict):
        sections.append((("cluster", "pool"), cluster.get("pool")))
    roots: list[tuple[KeyPath, Any]] = [((), values)]
    roots += (
        [(("machines", k), machine) for k, machine in enumerate(machines)]
        if isinstance(machines, list)
        else []
    )
    for root, inside in roots:
        tiers = inside.get("tiers") if isinstance(inside, dict) else None
        if isinstance(tiers, dict):
            sections += [((*root, "tiers", tier), tiers.get(tier)) for tier in TIERS]
    return [
        ((*path, "policy"), section)
        for path, section in sections
        if isinstance(section, dict) and isinstance(section.get("policy"), str)
    ]
