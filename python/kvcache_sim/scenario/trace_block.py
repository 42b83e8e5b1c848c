"""The cache's block where a scenario leaves it open: that of its trace or of its generated ids."""

from __future__ import annotations

import os

from msgspec.structs import replace

from kvcache_sim.scenario.read_settings import read_settings
from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.yaml_tree import Tree


def with_trace_block(model: ScenarioModel, tree: Tree) -> ScenarioModel:
    """Return the model with ``cache.block_size`` filled in where it is not written.

    A trace's block is told from the first bytes of its file; what cannot be looked at twice (a pipe), is not
    there or is no trace leaves the default, and its reading says why.
    """
    given = tree.values.get("cache")
    if isinstance(given, dict) and "block_size" in given:
        return model
    block = _block_of(model)
    if block is None:
        return model
    return replace(model, cache=replace(model.cache, block_size=block))


def _block_of(model: ScenarioModel) -> int | None:
    section = model.trace
    if section is None:
        block = model.workload.get("block_size") if "kind" in model.workload else None
        return block if isinstance(block, int) and block > 0 else None
    if not os.path.isfile(section.path):
        return section.block_size
    from kvcache_sim.workload.readers.block import block_of_file

    return block_of_file(section.path, read_settings(section))
