"""What a lower tier adds below an upper one, both evicting the least recently used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvcache_sim.replay.curve.steps import Int64s, Steps


@dataclass(frozen=True, slots=True)
class LowerTier:
    """Hits in blocks that a tier of each capacity adds to the tiers above it, ``above_blocks`` in all.

    ``exclusive``: a block is in one tier, so the tiers are slices of one recency list. ``inclusive``: the
    lower tier also holds what is above it, so only what exceeds the largest tier above counts, and the
    tiers above find ``above_inclusive_hit_blocks`` instead of ``above_hit_blocks``.
    """

    capacities: Int64s
    above_blocks: int
    above_hit_blocks: int
    above_inclusive_hit_blocks: int
    exclusive: Int64s
    inclusive: Int64s


def lower_tier(curve: Steps, above: list[int], capacities: Int64s) -> LowerTier:
    """Return the curve of the tier below tiers of these sizes (fast to slow)."""
    total, largest = sum(above), max(above)
    found = curve.at(np.array([total, largest]))
    return LowerTier(
        capacities=capacities,
        above_blocks=total,
        above_hit_blocks=int(found[0]),
        above_inclusive_hit_blocks=int(found[1]),
        exclusive=curve.at(capacities + total) - found[0],
        inclusive=curve.at(np.maximum(capacities, largest)) - found[1],
    )
