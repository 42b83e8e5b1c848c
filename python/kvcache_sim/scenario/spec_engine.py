"""The refusal of a scenario that the specification does not cover."""

from __future__ import annotations

from dataclasses import replace

from kvcache_sim.scenario.load import Scenario
from kvcache_sim.simulation.spec_keys import uncovered


def refuse_beyond_spec(scenario: Scenario) -> None:
    """Raise UsageError where a setting is not covered by ``spec/``."""
    for path, refusal in uncovered(scenario.resolved):
        raise replace(refusal, where=scenario.tree.place(path) or "--engine spec")
