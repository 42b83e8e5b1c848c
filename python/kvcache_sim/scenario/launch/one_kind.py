"""vLLM without its hybrid KV cache manager: every layer keeps every block, sliding-window layers too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kvcache_sim.base.units import parse_size_bytes
from kvcache_sim.model.model_file import load_model
from kvcache_sim.scenario.launch.making import Making
from kvcache_sim.scenario.quantities import render_size

FLAG = "--disable-hybrid-kv-cache-manager"
KEY = "cache.layer_groups"


def settings_of_one_kind(model: str, kv_dtype: str) -> dict[str, str] | None:
    """Return the settings that make all layers of a model keep every block, at the bytes of all layers.

    Empty if all layers keep every block anyway; None if the engine refuses the model: a state is not a block.
    """
    kept = load_model(model).with_dtypes("", kv_dtype).caches()
    if any(cache.reach == "state" or cache.tokens_per_entry != 1 for cache in kept):
        return None
    if all(cache.reach == "all" for cache in kept):
        return {}
    each = math.ceil(sum(cache.entry_bytes * len(layers) for cache, layers in kept.items()))
    return {KEY: "as-full", "cache.kv_bytes_per_token": render_size(each)}


def as_one_kind(made: Making) -> None:
    """Apply the flag to a scenario that is valid without it; leave the flag if the engine refuses it."""
    names = [name for name, given in made.given.items() if given.flag.rule == "one-kind" and given.on]
    given = made.take(names[0]) if names else None
    if given is None:
        return
    values, flag = made.tree.values, given.flag.name
    settings = settings_of_one_kind(str(values["model"]), values["cache"].get("kv_dtype") or "")
    if settings is None:
        made.leave(given, "the engine refuses it: a state or a compressed latent is no block of tokens")
    elif not settings:
        made.note("no effect", str(given), "each layer keeps every block anyway")
    elif made.attempt(settings | _capacity(made), flag) and (
        why := made.attempt({KEY: settings[KEY]}, flag)  # no setting takes bytes if no capacity is in bytes
    ):
        made.leave(given, why)


def is_one_kind(settings: Mapping[str, Any], model: str) -> bool:
    """Return True if a resolved scenario's flat settings are those of an engine started with the flag."""
    if settings.get(KEY) != "as-full":
        return False
    wanted = settings_of_one_kind(model, settings.get("cache.kv_dtype") or "")
    in_blocks = str(settings["tiers.gpu.capacity"]).endswith(" blocks")
    if not wanted or (in_blocks and settings.get("tiers.cpu.capacity") is None):
        return bool(wanted)
    written, full = str(settings["cache.kv_bytes_per_token"]), wanted["cache.kv_bytes_per_token"]
    return parse_size_bytes(written) == parse_size_bytes(full)


def _capacity(made: Making) -> dict[str, str]:
    """Return the memory left on all GPUs as a capacity in bytes, if the line gives no capacity."""
    if "gpu" in made.tree.values.get("tiers", {}):
        return {}
    settings = made.settle().settings
    blocks = settings.machines[0].tiers[0].capacity_blocks or 0
    made.note("assumed", "tiers.gpu.capacity is what memory leaves there, in bytes")
    return {"tiers.gpu.capacity": render_size(blocks * settings.cache.block_bytes)}
