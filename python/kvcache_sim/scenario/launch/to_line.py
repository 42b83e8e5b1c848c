"""A resolved scenario as a launch line of an engine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from kvcache_sim.errors import UsageError
from kvcache_sim.metrics.names import flatten
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.launch.flags import ENGINES, Engine
from kvcache_sim.units import parse_size_bytes


def launch_of_scenario(resolved: Mapping[str, Any], engine_name: str) -> str:
    """Return the launch line of an engine that a scenario describes; raises UsageError for an unknown engine.

    What an engine has no flag for is left out.
    """
    engine = next((one for one in ENGINES if one.name == engine_name), None)
    if engine is None:
        names = " | ".join(one.name for one in ENGINES)
        raise UsageError("unknown engine", where="--engine", got=repr(engine_name), expected=names)
    settings = flatten(resolved)
    subject = measured_on(str(settings["replica.step_time"]))
    model = str(settings["model"])
    words = [*engine.starts[0], *([engine.models[0]] if engine.models[0] != "--model" else []), model]
    if subject.tensor_parallel > 1:
        words += [engine.tensor_parallel, str(subject.tensor_parallel)]
    if settings.get("cluster.machines", 1) != 1:
        words += [engine.replicas, str(settings["cluster.machines"])]
    return shlex.join([*words, *_flags(engine, settings)])


def _flags(engine: Engine, settings: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for flag, key in engine.same.items():
        if settings.get(key) is not None:
            words += [flag, str(settings[key])]
    for flag, (key, form) in engine.sized.items():
        number = _number(str(settings.get(key) or ""), form)
        words += [flag, number] if number else []
    for flag, (key, value) in engine.switches.items():
        if str(settings.get(key)).lower() == value and value != "true":
            words.append(flag)
    for flag, (key, meanings) in engine.words.items():
        spelled = next((word for word, own in meanings.items() if own and own == settings.get(key)), None)
        words += [flag, spelled] if spelled else []
    return words


def _number(written: str, form: str) -> str:
    """Return the number that a capacity has in a flag's unit, "" where it is in another."""
    if form.endswith("blocks"):
        return written.removesuffix(" blocks") if written.endswith(" blocks") else ""
    if not written or written.endswith("blocks") or not written[0].isdigit():
        return ""
    size = parse_size_bytes(written) / parse_size_bytes("1" + form.format(""))
    return f"{size:g}"
