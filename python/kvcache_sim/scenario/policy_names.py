"""Settings that name a policy: a built-in one, ``file.py:Name``, ``pkg.mod:Name`` or an entry point."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from kvcache_sim.cache.admission import ADMISSION
from kvcache_sim.cache.fetch import FETCH
from kvcache_sim.cache.prefetch import PREFETCH
from kvcache_sim.cache.write import WRITE
from kvcache_sim.channels.choice import CHANNEL_CHOICE
from kvcache_sim.policies.plugins.choice import Kind, OneOf
from kvcache_sim.scenario.section import Checked
from kvcache_sim.scenario.validation import at_place
from kvcache_sim.scenario.yaml_tree import Path as KeyPath
from kvcache_sim.scenario.yaml_tree import Tree
from kvcache_sim.serving.membership.scaling_policy import SCALING
from kvcache_sim.serving.queue import QUEUE_ORDER
from kvcache_sim.serving.router.registry import ROUTER

AdmissionName = Annotated[str, Checked(OneOf(ADMISSION))]
ChannelChoiceName = Annotated[str, Checked(OneOf(CHANNEL_CHOICE))]
FetchName = Annotated[str, Checked(OneOf(FETCH))]
PrefetchName = Annotated[str, Checked(OneOf(PREFETCH))]
QueueOrderName = Annotated[str, Checked(OneOf(QUEUE_ORDER))]
RouterName = Annotated[str, Checked(OneOf(ROUTER))]
WriteName = Annotated[str, Checked(OneOf(WRITE))]

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
    """Make the files of plug-ins absolute: from ``directory`` where the scenario names them, else from here.

    A run that is repeated elsewhere finds them again.
    """
    for path, holder in _named(tree.values):
        holder[path[-1]] = absolute_plugin(holder[path[-1]], path, tree, directory)


def absolute_plugin(text: str, path: KeyPath, tree: Tree, directory: Path) -> str:
    """Return the name of a policy that stands at ``path``, the file of a plug-in made absolute."""
    place, colon, name = text.partition(".py:")
    adapter, between, file = place.rpartition(":")
    if not colon:
        return text
    base = Path.cwd() if tree.place(path).startswith("--set") else directory
    return f"{adapter}{between}{(base / file).absolute()}.py:{name}"


def refuse_broken_plugins(tree: Tree) -> None:
    """Import every plug-in that the scenario names; UsageError says where it was named and what is wrong."""
    for path, holder in _named(tree.values):
        setting = path[2:] if path[0] == "machines" else path
        kind = next(kind for key, kind in POLICY_KINDS.items() if setting[: len(key)] == key)
        name = holder[path[-1]]
        if name not in kind.names:
            at_place(tree, path, lambda kind=kind, name=name: kind.maker(name))  # type: ignore[misc]


def _named(values: dict[str, Any]) -> list[tuple[KeyPath, dict[Any, Any]]]:
    """Return (path, the mapping that holds it) of every policy that is named as text."""
    found: list[tuple[KeyPath, dict[Any, Any]]] = []
    machines = values.get("machines")
    roots: list[tuple[KeyPath, Any]] = [((), values)]
    roots += [(("machines", k), own) for k, own in enumerate(machines)] if isinstance(machines, list) else []
    for root, inside in roots:
        for setting in POLICY_KINDS:
            holder: Any = inside
            for step in setting[:-1]:
                holder = holder.get(step) if isinstance(holder, dict) else None
            if not isinstance(holder, dict) or setting[-1] not in holder:
                continue
            if root and setting[0] != "replica":
                continue  # refused by its own check
            value, path = holder[setting[-1]], (*root, *setting)
            if isinstance(value, dict):
                found += [((*path, part), value) for part in value if isinstance(value[part], str)]
            elif isinstance(value, str):
                found.append((path, holder))
    return found
