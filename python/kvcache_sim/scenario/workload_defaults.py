"""A generated workload with every default of its kind written out in scenario syntax."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.quantities import render_time
from kvcache_sim.workload.generate import KINDS, settings_of
from kvcache_sim.workload.generate.arrivals import ARRIVALS
from kvcache_sim.workload.generate.lengths import DISTRIBUTIONS


def written_out(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``workload`` section of a generator (``kind`` and its keys) with all its keys.

    Keys in the section stay as they were written. Raises UsageError, naming ``workload.KEY``, for settings
    that the generator refuses.
    """
    kind = section["kind"]
    given = {key: value for key, value in section.items() if key != "kind"}
    settings_of(kind, given)
    # The setting that a target searches for has no default.
    searched = getattr(KINDS[kind], "dial", ("",))[0] if given.get("target_hit_ratio") is not None else ""
    result: dict[str, Any] = {"kind": kind}
    for field in dataclasses.fields(KINDS[kind]):
        if field.name in given:
            result[field.name] = given[field.name]
        elif field.name != searched:
            result[field.name] = _written(field)
    return result


def _written(field: dataclasses.Field[Any]) -> Any:
    """Return the plain value that the field's own parser reads as its default."""
    parse = field.metadata["parse"]
    for write_number in (_as_it_is, render_time):
        value = _plain(field.default, write_number)
        try:
            if parse(field.name, value) == parse(field.name, field.default):
                return value
        except UsageError:
            continue
    raise AssertionError(f"cannot write the default of {field.name}")


def _as_it_is(value: int) -> int:
    return value


def _plain(value: Any, write_number: Callable[[int], Any]) -> Any:
    """Return a default as YAML has it, whole numbers of a distribution through ``write_number``."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    parts = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    for name, process in ARRIVALS.items():
        if type(value) is process:
            plain = {key.removesuffix("_ns"): render_time(part) if key.endswith("_ns") else part
                     for key, part in parts.items()}  # fmt: skip
            return {"process": name, **plain}
    (name,) = (name for name, distribution in DISTRIBUTIONS.items() if type(value) is distribution)
    numbered = {key: _numbers(part, write_number) for key, part in parts.items()}
    return numbered["value"] if name == "constant" else {"kind": name, **numbered}


def _numbers(part: Any, write_number: Callable[[int], Any]) -> Any:
    if isinstance(part, tuple):
        return [_numbers(one, write_number) for one in part]
    return write_number(part) if isinstance(part, int) else part
