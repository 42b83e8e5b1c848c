"""A resolved scenario as a launch line of an engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import parse_size_bytes
from kvcache_sim.metrics.names import flatten
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.launch import one_kind
from kvcache_sim.scenario.launch.drafts import flags_of_drafts
from kvcache_sim.scenario.launch.old_flags import ENGINES, Engine
from kvcache_sim.scenario.launch.weights import flags_of_weights
from kvcache_sim.scenario.load import scenario_from_text

#: Sections that describe the engine; the others describe requests, hardware and prices.
_THE_ENGINE = (
    "cache.",
    "tiers.",
    "replica.",
    "write.",
    "fetch.",
    "prefetch.",
    "router.",
    "pools.",
    "handover.",
)
#: Keys of these sections that a line expresses otherwise, or that follow from them.
_SAID = (
    "replica.step_time",
    "replica.scheduler",
    "replica.dp",
    "replica.speculation.",
    "cache.semantics",
    "cache.kv_bytes_per_token",
    "tiers.gpu.capacity",
)
#: The degree of experts that all ranks share, in the name of a step-time source.
_SPREAD_EXPERTS = re.compile(r"[:,-]ep\d")


#: Default values of flags, which are left out.
_USUAL = {
    "--long-prefill-token-threshold": ("0",),
    "--schedule-policy": ("fcfs",),
    "--schedule-conservativeness": ("1.0",),
    "--enable-mixed-chunk": ("false",),
}


class Launch(NamedTuple):
    """A launch line, and the non-default settings that it has no flag for."""

    line: str
    without_flag: tuple[str, ...]


def launch_of_scenario(resolved: Mapping[str, Any], engine_name: str) -> Launch:
    """Return the launch line of an engine that a scenario describes.

    Raises UsageError for an unknown engine.
    """
    engine = next((one for one in ENGINES if one.name == engine_name), None)
    if engine is None:
        names = " | ".join(one.name for one in ENGINES)
        raise UsageError("unknown engine", where="--engine", got=repr(engine_name), expected=names)
    settings = flatten(resolved)
    subject = measured_on(str(settings["replica.step_time"]))
    model = str(settings["model"])
    ranks = resolved.get("replica", {}).get("dp", 1)
    degree = subject.tensor_parallel
    words = [*engine.starts[0], *([engine.models[0]] if engine.models[0] != "--model" else []), model]
    if engine.name == "sglang" and ranks > 1:
        words += ["--enable-dp-attention", engine.tensor_parallel, str(degree * ranks)]
    elif degree > 1:
        words += [engine.tensor_parallel, str(degree)]
    if engine.name == "vllm" and ranks > 1 and _SPREAD_EXPERTS.search(str(settings["replica.step_time"])):
        words.append("--enable-expert-parallel")
    if settings.get("cluster.machines", 1) != 1:
        words += [engine.replicas, str(settings["cluster.machines"])]
    flags, used = _flags(engine, settings, degree)
    if one_kind.FLAG in engine.valueless and one_kind.is_one_kind(settings, model):
        flags, used = [*flags, one_kind.FLAG], {*used, one_kind.KEY}
    drafts = resolved.get("replica", {}).get("speculation")
    if drafts:
        flags += flags_of_drafts(engine.name, drafts)
    weights = flags_of_weights(subject.weight_dtype, model)
    without = _without_flag(settings, {*used, *_router(engine, settings)})
    without += [] if weights is not None else [f"weights in {subject.weight_dtype} (replica.step_time)"]
    return Launch(shlex.join([*words, *flags, *(weights or [])]), tuple(without))


def _router(engine: Engine, settings: Mapping[str, Any]) -> list[str]:
    """Return the router's key if it is the engine's own balancer of ranks."""
    usual = {"vllm": "vllm-dp", "sglang": "round-robin"}[engine.name]
    return (
        ["router.policy"]
        if settings.get("router.policy") == usual or settings.get("replica.dp", 1) > 1
        else []
    )


def _flags(engine: Engine, settings: Mapping[str, Any], degree: int) -> tuple[list[str], set[str]]:
    """Return the flags, and the settings that they express."""
    words: list[str] = []
    said: set[str] = set()

    def say(key: str, *flag: str) -> None:
        words.extend(flag)
        said.add(key)

    for flag, key in engine.spread.items():
        if (settings.get(key) or 1) > 1:
            say(key, flag, str(settings[key]))
    copies = settings["replica.cp"] if "replica.cp" in said else 1
    for flag, key in engine.same.items():
        if settings.get(key) is not None:
            value = settings[key] // copies if key == "cache.block_size" else settings[key]
            say(key, flag, str(value))
    gpus = degree * (settings["replica.pp"] if "replica.pp" in said else 1)
    for flag, (key, form) in engine.sized.items():
        per = gpus if flag in engine.sized_per_gpu else 1
        page = int(settings.get("cache.block_size") or 1)
        number = "" if key in said else _number(str(settings.get(key) or ""), form, per, page)
        if number:
            say(key, flag, number)
    for flag, (key, value) in engine.switches.items():
        if str(settings.get(key)).lower() == value and value not in ("true", "none"):
            say(key, flag)
    lower = settings.get("tiers.cpu.capacity") is not None
    if engine.name == "sglang":
        say("replica.async_scheduling", *_overlap(settings))
        words += ["--enable-hierarchical-cache"] if lower else []
    for flag, (key, meanings) in engine.words.items():
        if key == "write.policy" and not lower:
            continue
        spelled = next(
            (word for word, meaning in meanings.items() if meaning and meaning == settings.get(key)), None
        )
        if spelled and spelled != "fcfs":
            say(key, flag, spelled)
    if settings.get("replica.scheduler") == engine.name:
        for flag, (key, meanings) in engine.own_scheduler.items():
            value = str(settings[key]).lower()
            if value not in _USUAL.get(flag, ()):
                say(key, flag, *([] if "" in meanings else [value]))
            said.add(key)
    return words, said


def _without_flag(settings: Mapping[str, Any], used: set[str]) -> list[str]:
    """Return the engine's non-default settings that no flag expresses."""
    usual = flatten(scenario_from_text("", "", Path.cwd()).resolved)
    return [
        key
        for key, value in settings.items()
        if key not in used
        and key.startswith(_THE_ENGINE)
        and not key.startswith(_SAID)
        and value not in (None, [], {}, usual.get(key))
    ]


def _overlap(settings: Mapping[str, Any]) -> list[str]:
    off = settings.get("replica.scheduler") == "sglang" and settings["replica.async_scheduling"] == "none"
    return ["--disable-overlap-schedule"] if off else []


def _number(written: str, form: str, per_gpu: int, page: int) -> str:
    """Return a capacity as a number in a flag's unit; "" if it is in another unit."""
    if form == "{} tokens":
        return str(int(written.removesuffix(" blocks")) * page) if written.endswith(" blocks") else ""
    if form.endswith("blocks"):
        return written.removesuffix(" blocks") if written.endswith(" blocks") else ""
    if not written or written.endswith("blocks") or not written[0].isdigit():
        return ""
    size = parse_size_bytes(written) / parse_size_bytes("1" + form.format("")) / per_gpu
    return f"{size:.12g}"
