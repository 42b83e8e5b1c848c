"""A scenario's ``trace`` section as the reader's settings, and the block size of its file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvcache_sim.scenario.schema import ScenarioModel
from kvcache_sim.scenario.trace_section import TraceSection
from kvcache_sim.scenario.yaml_tree import Tree

if TYPE_CHECKING:
    from kvcache_sim.workload.readers.settings import ReadSettings


def read_settings(section: TraceSection, keep_unknown: bool = False) -> ReadSettings:
    """Return the reader's settings; with ``keep_unknown`` members without a column are kept."""
    from kvcache_sim.workload.readers.settings import ReadSettings
    from kvcache_sim.workload.synthetic_prefixes import PrefixAssumption

    assumed = section.synthesise_prefixes
    prefixes = None if assumed is None else PrefixAssumption(assumed.turns, assumed.pause, assumed.seed)
    return ReadSettings(
        block_size=section.block_size,
        on_bad_row=section.on_bad_row,
        format=section.format,
        time_order=section.time_order,
        bytes_per_token=section.bytes_per_token,
        tokenizer=section.tokenizer,
        keep_unknown=keep_unknown,
        extra_keys=tuple(section.extra_keys),
        prefixes=prefixes,
    )


def with_trace_block(model: ScenarioModel, tree: Tree) -> ScenarioModel:
    """Return the model with ``cache.block_size`` filled in if it is not written.

    A trace's block size is detected from the first bytes of its file. The default stays for a pipe, a missing
    file and a file that is not a trace; the reader reports the error later.
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
