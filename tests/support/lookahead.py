"""Arrivals in batches and machines that run ahead of the clock: neither changes a result.

The same settings run three times by the core: as it chooses; with an event for each arrival, so that routers
in Python decide; and with machines that wait for the clock, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from unittest.mock import patch

from kvcache_sim.metrics.run import Run
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation
from kvcache_sim.workload.trace import Trace

from support.agreement import assert_same

SINGLE_ARRIVALS = "kvcache_sim.simulation.simulation.open_front_door"
LOOKAHEAD = "kvcache_sim.simulation.simulation.Simulation._can_run_ahead"


_T = TypeVar("_T")


def by_the_clock(make: Callable[[], _T]) -> list[_T]:
    """Return what is made as the core chooses, with single arrivals, and without look-ahead."""
    chosen = make()
    with patch(SINGLE_ARRIVALS, return_value=False):
        single = make()
    with patch(LOOKAHEAD, return_value=False):
        return [chosen, single, make()]


def assert_same_by_the_clock(settings: ClusterSettings, trace: Trace, batches: bool | None = None) -> Run:
    """Return the core's run, which those with single arrivals and without look-ahead equal.

    ``batches``: whether its requests have to arrive in batches; None: either.
    """
    simulation = Simulation(settings, trace, RunOptions())
    assert batches in (None, simulation._comes_natively)
    run = simulation.run()
    with patch(SINGLE_ARRIVALS, return_value=False):
        single = Simulation(settings, trace, RunOptions(check="full"))
        assert not single._comes_natively
        assert_same(run, single.run())
    with patch(LOOKAHEAD, return_value=False):
        assert_same(run, Simulation(settings, trace, RunOptions()).run())
    return run
