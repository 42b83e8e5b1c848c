"""The seeds of repeated runs: one for each repeat, the same for every configuration compared."""

from __future__ import annotations

from kvcache_sim.rng import derive_seed


def repeat_seed(seed: int, repeat: int) -> int:
    """Return the seed of a repeat (1, 2, …): common random numbers, as it does not depend on the settings.

    Repeat 0 keeps the scenario's own seed and is not asked for here.
    """
    return derive_seed(seed, f"sweep.repeat:{repeat}") >> 1  # a scenario's seed is below 2⁶³
