"""Capacities in tokens as whole blocks of ``cache.block_size``."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.machine_sections import TiersSection
from kvcache_sim.scenario.quantities import Capacity
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.served_model import has_groups
from kvcache_sim.scenario.yaml_tree import Path, Tree, at_location


def in_blocks(capacity: Capacity, model: ScenarioModel) -> Capacity:
    """Return a capacity in tokens as the whole blocks that it holds; any other as it is.

    Raises UsageError for less than a block, and for cache groups, whose blocks hold no fixed tokens.
    """
    if capacity.tokens is None:
        return capacity
    if has_groups(model):
        what = f"tokens do not say how many blocks the cache groups of {model.model} have"
        raise UsageError(what, got=str(capacity), expected="blocks or a size")
    size = model.cache.block_size
    if capacity.tokens < size:
        raise UsageError("capacity below one block", got=str(capacity), expected=f"at least {size} tokens")
    return Capacity(blocks=capacity.tokens // size)


def tiers_in_blocks(
    tiers: TiersSection, model: ScenarioModel, tree: Tree, machine: int | None
) -> TiersSection:
    """Return the tiers of the scenario, or of one machine, without capacities in tokens."""
    of_machine: Path = () if machine is None else ("machines", machine)
    found = {}
    for name, tier in tiers.present.items():
        if tier.capacity.tokens is not None:
            path: Path = ("tiers", name, "capacity")
            path = (*of_machine, *path) if (*of_machine, *path) in tree.locations else path
            blocks = at_location(tree, path, partial(in_blocks, tier.capacity, model))
            found[name] = replace(tier, capacity=blocks)
    return replace(tiers, **found) if found else tiers


def with_blocks(model: ScenarioModel, tree: Tree) -> ScenarioModel:
    """Return the scenario, whose model is filled in, without capacities in tokens."""
    model = replace(model, tiers=tiers_in_blocks(model.tiers, model, tree, None))
    pool = model.cluster.pool
    if pool is None or pool.capacity.tokens is None:
        return model
    path = ("cluster", "pool", "capacity")
    pool = replace(pool, capacity=at_location(tree, path, partial(in_blocks, pool.capacity, model)))
    return replace(model, cluster=replace(model.cluster, pool=pool))
