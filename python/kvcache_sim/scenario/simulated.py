"""The choices that the simulation obeys today: any other the schema knows is refused, never ignored."""

from __future__ import annotations

from collections.abc import Iterator

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.validation import dotted
from kvcache_sim.scenario.yaml_tree import Path, Tree
from kvcache_sim.tiers import LOAD_EDGES

#: Setting → the values the simulation obeys. Who teaches it a new one adds it here.
SIMULATED: dict[Path, tuple[str, ...]] = {
    ("cache", "semantics"): ("tree", "vllm", "sglang"),
    ("cache", "touch"): ("release", "admission"),
    ("cache", "full_hit"): ("prefill-remainder", "skip-prefill"),
    ("fetch", "exclusive"): LOAD_EDGES,
    ("channels", "sharing"): ("fifo", "fair"),
    ("channels", "priority"): ("in-order", "loads-first"),
}


def refuse_not_simulated(model: ScenarioModel, tree: Tree) -> None:
    """Raise UsageError for the first choice that no part of the simulation would obey."""
    for setting, path, value in _choices(model):
        known = SIMULATED[setting]
        if value not in known:
            expected = f"one of {', '.join(known)}" if known else "none"
            raise UsageError(
                f"{dotted(path)}: not simulated", where=tree.place(path), got=repr(value), expected=expected
            )


def _choices(model: ScenarioModel) -> Iterator[tuple[Path, Path, str]]:
    """Yield (row of SIMULATED, path in this scenario, value) of every choice made."""
    for setting in SIMULATED:
        section, key = map(str, setting)
        if section == "channels":
            for name, channel in model.channels.items():
                yield setting, ("channels", name, key), getattr(channel, key)
            continue
        value = getattr(getattr(model, section), key)
        if isinstance(value, dict):
            for part, one in value.items():
                yield setting, (*setting, part), one
        elif isinstance(value, list):
            for position, one in enumerate(value):
                yield setting, (*setting, position), one
        else:
            yield setting, setting, str(value).lower() if isinstance(value, bool) else value
