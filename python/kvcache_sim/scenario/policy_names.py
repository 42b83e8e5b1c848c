"""Settings that name a policy: a built-in one, ``file.py:Name``, ``pkg.mod:Name`` or an entry point."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from kvcache_sim.cache.admission import ADMISSION
from kvcache_sim.cache.fetch import FETCH
from kvcache_sim.cache.prefetch import PREFETCH
from kvcache_sim.cache.write import WRITE
from kvcache_sim.channels.choice import CHANNEL_CHOICE
from kvcache_sim.policies.plugins.choice import Kind
from kvcache_sim.policies.plugins.permission import may_load
from kvcache_sim.scenario.validation import at_location
from kvcache_sim.scenario.yaml_tree import Path as KeyPath
from kvcache_sim.scenario.yaml_tree import Tree
from kvcache_sim.serving.membership.scaling_policy import SCALING
from kvcache_sim.serving.queue import QUEUE_ORDER
from kvcache_sim.serving.router.registry import ROUTER


def _named(kind: Kind) -> Meta:
    """Return the metadata of a key that names a policy; ``refuse_unknown_policies`` checks the name."""
    known: list[Any] = [{"enum": list(kind.names)}, {"type": "string"}]
    return Meta(extra={"kind": kind}, extra_json_schema={"anyOf": known})


AdmissionName = Annotated[str, _named(ADMISSION)]
ChannelChoiceName = Annotated[str, _named(CHANNEL_CHOICE)]
FetchName = Annotated[str, _named(FETCH)]
PrefetchName = Annotated[str, _named(PREFETCH)]
QueueOrderName = Annotated[str, _named(QUEUE_ORDER)]
RouterName = Annotated[str, _named(ROUTER)]
ScalingName = Annotated[str, _named(SCALING)]
WriteName = Annotated[str, _named(WRITE)]

#: Every setting that names a policy → its kind, as ``kvsim policies list`` prints them.
POLICY_KINDS: dict[KeyPath, Kind] = {
    ("write", "policy"): WRITE,
    ("fetch", "policy"): FETCH,
    ("prefetch", "policy"): PREFETCH,
    ("cache", "admission"): ADMISSION,
    ("replica", "queue_order"): QUEUE_ORDER,
    ("router", "policy"): ROUTER,
    ("handover", "router"): ROUTER,
    ("channel_choice",): CHANNEL_CHOICE,
    ("fleet", "scaling", "policy"): SCALING,
}


def with_absolute_plugins(tree: Tree, directory: Path) -> None:
    """Make plug-in files absolute: relative to ``directory`` for names in the scenario, else to here.

    A run that is repeated elsewhere finds the files again.
    """
    for path, plugin in _policies(tree.values):
        plugin[path[-1]] = absolute_plugin(plugin[path[-1]], path, tree, directory)


def absolute_plugin(text: str, path: KeyPath, tree: Tree, directory: Path) -> str:
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
    roots += [(("machines", k), own) for k, own in enumerate(machines)] if isinstance(machines, list) else []
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
