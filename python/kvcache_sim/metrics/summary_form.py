"""The form of ``summary.json``, by the rows of the figures: what readers of a given file may rely on.

Members that no figure names are not read, and pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kvcache_sim.metrics.figures import FIGURES
from kvcache_sim.metrics.names import STABLE_METRICS

#: Figures without a unit that readers take for a list or a text.
_OTHERS: dict[str, type] = {
    "machines.requests": list,
    "machines.prefilled_tokens": list,
    "handover.machines": list,
    "prefix_cache.ttft_hit_vs_miss.sentence": str,
    "saturation.sentence": str,
    "step_times.source": str,
    "step_times.error_from": str,
    "engine.name": str,
    "digest.events": str,
    "digest.results": str,
}
_NUMBER = (int, float)


@dataclass(slots=True)
class _Part:
    """A part of a dotted name: a figure, a group of figures, or both; a family's members are ``*``."""

    forms: type | tuple[type, ...] | None = None
    members: dict[str, _Part] = field(default_factory=dict)


@cache
def _root() -> _Part:
    root = _Part()
    for figure in FIGURES:
        part = root
        for word in figure.name.split("."):
            part = part.members.setdefault("*" if word.startswith("<") else word, _Part())
        is_number = figure.unit or figure.name in STABLE_METRICS
        part.forms = _NUMBER if is_number else _OTHERS.get(figure.name, (int, float, str, list))
    return root


def misfits(summary: Any) -> Iterator[str]:
    """Yield ``name: value`` of each member that its figure's form does not fit; null fits each."""
    yield from _misfits(summary, _root(), "")


def _misfits(value: Any, part: _Part, name: str) -> Iterator[str]:
    inner = part.members
    if isinstance(value, dict) and inner:
        for key, member in value.items():
            if known := inner.get(key) or inner.get("*"):
                yield from _misfits(member, known, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list) and (row := inner.get("row") or inner.get("*")):
        for at, member in enumerate(value):
            yield from _misfits(member if isinstance(member, dict) else "no row", row, f"{name}.{at}")
    elif isinstance(value, list) and part.forms == _NUMBER:
        if any(type(member) not in _NUMBER for member in value):
            yield f"{name}: {value!r}"
    elif value is not None and not (part.forms and isinstance(value, part.forms)):
        yield f"{name}: {value!r}"
