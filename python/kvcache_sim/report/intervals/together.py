"""All assumptions of a scenario together: the two points that bound 90 % of what they leave open.

All at their own bounds at once is far less likely than each alone, so that is no 90 % interval. For
independent errors the likeliest point at the same distance moves each by its share of the answer's error:
with s the logarithm of the factor at its bound and a its effect on the answer, ``s · |a·s| / √Σ(a·s)²``. This
is the design point of Hasofer and Lind (Exact and invariant second-moment code format, J. Eng. Mech. Div.
ASCE 100, 1974). It is exact if the effects are as assumed (``_EFFECTS``); assumptions of one error, such as
all step times of one source, move as one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.intervals.assumption import Assumption
from kvcache_sim.serving.settings import ClusterSettings

#: Kind → effect of a per cent of it on an answer that waits for steps (TPOT, E2E, a rate), and on one that
#: waits for loads (TTFT) where all of it is loading. A cost that is part of a step or a transfer counts as a
#: fifth of it. A larger cache shortens the waits for loads and steps alike, but little of a step.
_EFFECTS = {
    "step": (1.0, 0.0),
    "step part": (0.2, 0.0),
    "link": (0.0, 1.0),
    "link part": (0.0, 0.2),
    "capacity": (0.2, 1.0),
}


class AtFactor(NamedTuple):
    """An assumption, and the factor by which its figure is multiplied."""

    assumption: Assumption
    factor: float


def loading_share(summary: Mapping[str, Any]) -> float:
    """Return the share of the mean TTFT, queueing apart, that waits for KV: loads and hand-overs."""

    def mean(name: str) -> float:
        return metric_value(summary, f"latency.ttft_parts.{name}.avg") or 0.0

    loading = sum(map(mean, ("lookup", "fetch", "handover")))
    computing = sum(map(mean, ("prefill", "first_decode")))
    return loading / (loading + computing) if loading else 0.0


def together(found: Sequence[Assumption], slow: bool, loading: float) -> list[AtFactor]:
    """Return each assumption with its factor at the slow or the fast bound of all of them.

    ``loading`` is the ``loading_share`` of the run. There are two answers, one that waits for steps alone and
    TTFT, which waits for loads by that share; an assumption moves by the larger of its two shares.
    """
    logs = [math.log(one.slow if slow else one.fast) for one in found]
    errors = [one.error or one.name for one in found]
    moved = [0.0] * len(found)
    for weight in (0.0, loading):
        effects = [(1 - weight) * a + weight * b for a, b in (_EFFECTS[one.kind] for one in found)]
        each = _largest(errors, [abs(a * s) for a, s in zip(effects, logs, strict=True)])
        length = math.sqrt(math.fsum(effect * effect for effect in each.values()))
        if length:
            moved = [max(before, each[name] / length) for before, name in zip(moved, errors, strict=True)]
    return [AtFactor(one, math.exp(s * share)) for one, s, share in zip(found, logs, moved, strict=True)]


def _largest(names: Sequence[str], effects: Sequence[float]) -> dict[str, float]:
    """Return by name the largest of its effects."""
    found: dict[str, float] = {}
    for name, value in zip(names, effects, strict=True):
        found[name] = max(value, found.get(name, 0.0))
    return found


def applied(settings: ClusterSettings, values: Sequence[AtFactor]) -> ClusterSettings:
    """Return the settings with each assumption at its factor."""
    for one, factor in values:
        settings = one.apply(settings, factor)
    return settings
