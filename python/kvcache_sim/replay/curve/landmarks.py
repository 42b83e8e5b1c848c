"""Three places on a curve that people ask for: the knee, the working set, the footprint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcache_sim.replay.curve.steps import Steps

#: The working set reaches this share of the hits of an unbounded cache.
WORKING_SET_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class Landmarks:
    """Capacities in blocks.

    ``knee``: the corner farthest above the straight line from nothing to the footprint (Kneedle, Satopää et
    al. 2011). ``working_set``: the smallest that reaches 99 % of the hits of an unbounded cache.
    ``footprint``: the smallest that reaches all of them; below a tier of this size a lower tier adds no hit.
    """

    knee_blocks: int
    working_set_blocks: int
    footprint_blocks: int


def landmarks(curve: Steps) -> Landmarks:
    """Return the landmarks of a curve; all are 0 for a trace without reuse."""
    top, last = curve.top, curve.last
    if top == 0:
        return Landmarks(0, 0, 0)
    corners = curve.corners[curve.corners <= last]
    above = curve.at(corners) / top - corners / last
    return Landmarks(
        knee_blocks=int(corners[int(np.argmax(above))]),
        working_set_blocks=curve.reaching(WORKING_SET_SHARE * top),
        footprint_blocks=last,
    )
