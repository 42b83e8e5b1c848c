"""Suggestions for an unknown key: the setting of an engine's flag, or the same key in another section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_origin

from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.tiers import COMPUTE, STAGING, TIERS
from kvcache_sim.scenario.section import Section, keys, parts, section_in
from kvcache_sim.scenario.yaml_tree import Path

_DEGREE = "replica.step_time names it: roofline:llama-3.1-8b@h100:tp2; kvsim step-times list"
_GPU = "replica.step_time names the GPU: roofline:llama-3.1-8b@h100; kvsim gpus list"
_LOWER = f"tiers.{TIERS[STAGING]}.capacity"
#: Words that are no flag of a launch line, or that correspond to several settings.
_SAID_ELSEWHERE = {
    "tp": _DEGREE,
    "tp_size": _DEGREE,
    "tensor_parallel": _DEGREE,
    "tensor_parallel_size": _DEGREE,
    "gpu": _GPU,
    "gpus": _GPU,
    "hardware": _GPU,
    "device": _GPU,
    "dtype": "cache.kv_dtype is that of the KV; weights' is the step time's: kvsim step-times show NAME",
    "num_replicas": "did you mean 'cluster.machines'?",
    "replicas": "did you mean 'cluster.machines'?",
    "eviction_policy": "did you mean 'cache.policy'?",
    "disagg": "did you mean 'pools.prefill' and 'pools.decode'?",
    "hbm": f"did you mean {TIERS[COMPUTE]!r}?",
    "dram": f"did you mean {TIERS[STAGING]!r}?",
    "ram": f"did you mean {TIERS[STAGING]!r}?",
    "ssd": f"did you mean {TIERS[STAGING + 1]!r}?",
    "nvme": f"did you mean {TIERS[STAGING + 1]!r}?",
    "swap_space": f"did you mean '{_LOWER}'?",
    "cpu_offload_gb": f"it moves weights, which kvsim does not; KV on the CPU is '{_LOWER}'",
    "enable_kv_offload": f"did you mean '{_LOWER}'?",
}
_SHARED = "models that share machines were dropped in 0.2; 'models.of.NAME.machines' gives each its own"
_SLOTS = "slots of adapters were dropped in 0.2; 'adapters.field' names an adapter, part of blocks' keys"
#: Keys that were removed, with the version: by the outermost section and the key.
_DROPPED = {
    ("retention", "pin_s"): "pins were dropped in 0.2; 'retention.ttl_s' drops blocks after a time",
    ("offline", "offline"): (
        "offline batches were dropped in 0.2; 'workload.loop: closed' lets requests wait for answers, and a "
        "flush of 'fleet.plan' empties caches"
    ),
    **{("models", key): _SHARED for key in ("shares", "weights", "load_rate", "sleep_rate")},
    **{("adapters", key): _SLOTS for key in ("slots", "size", "load_rate")},
}
#: Most locations of a key that a hint lists.
_MOST_SUGGESTIONS = 8
#: Types that hold several sections, whose keys have no single path.
_MANY = (dict, Mapping, list, tuple)


def meant_by(model: type[Section], path: Path, known: list[str]) -> str:
    """Return a hint for a key that is none of the ``known`` keys of its section; "" if nothing is similar.

    ``model`` is the whole schema that the section belongs to, ``path`` the key's path in it. An engine's word
    for a setting takes precedence, then the same key of another section, then the most similar key of its own
    section, then of the whole schema.
    """
    word = str(path[-1])
    name = word.strip("-").replace("-", "_").lower()
    if (dropped := _DROPPED.get((str(path[0]), name))) is not None:
        return dropped
    if name in _SAID_ELSEWHERE:
        return _SAID_ELSEWHERE[name]
    paths = _paths(model)
    if (setting := _of_engines().get(name)) is not None:
        return f"did you mean {setting!r}?"
    dotted = name.replace("_", ".", 1)
    same = [dotted] if dotted in paths.get(dotted.rpartition(".")[2], ()) else paths.get(name, [])
    if same:
        return f"did you mean {' or '.join(map(repr, same[:_MOST_SUGGESTIONS]))}?"
    if near := close_matches(word, known, n=1, cutoff=0.5):
        return f"did you mean {near[0]!r}?"
    if near := close_matches(name, paths, n=1, cutoff=0.8):
        return f"did you mean {' or '.join(map(repr, paths[near[0]]))}?"
    return ""


def _of_engines() -> dict[str, str]:
    """Return the settings that flags of engines correspond to, by the flags in Python spelling."""
    from kvcache_sim.scenario.launch.flags import launch_engines

    flags = [flag for engine in launch_engines() for flag in engine.flags.values() if flag.key]
    return {
        name.strip("-").replace("-", "_"): flag.key
        for flag in reversed(flags)
        for name in (flag.name, *flag.also)
        if flag.key != "replica.step_time"
    }


def _paths(model: type[Section]) -> dict[str, list[str]]:
    """Return the paths of each key by its last part, without mappings and lists."""
    paths = dict[str, list[str]]()
    for path in _keys(model, ""):
        paths.setdefault(path.rpartition(".")[2], []).append(path)
    return paths


def _keys(section: type[Section], prefix: str) -> Iterator[str]:
    for name, key in keys(section).items():
        inner = None if any(get_origin(part) in _MANY for part in parts(key.type)) else section_in(key.type)
        if inner is None:
            yield prefix + name
        else:
            yield from _keys(inner, f"{prefix}{name}.")
