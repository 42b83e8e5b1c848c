"""Batched arrivals and lookahead of machines: neither changes a result.

The same settings run three times by the core: as it chooses; with an event for each arrival, so that routers
in Python decide; and with machines that wait for the clock, too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from kvcache_sim.metrics.run import Run
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.cluster import Cluster
from kvcache_sim.serving.native_arrivals import open_front_door
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import Trace

from support.agreement import BeyondSpec, agree_on, assert_same, run_or_refusal
from support.tiered_scenario import BASE, load

SINGLE_ARRIVALS = "kvcache_sim.simulation.simulation.open_front_door"
#: Requests that go to the core at a time.
PACKET = "kvcache_sim.serving.native_arrivals._AT_A_TIME"
LOOKAHEAD = "kvcache_sim.simulation.simulation.Simulation._allows_lookahead"


_T = TypeVar("_T")


def by_the_clock(make: Callable[[], _T]) -> list[_T]:
    """Return the results of three calls: as the core chooses, with single arrivals, and without lookahead."""
    chosen = make()
    with patch(SINGLE_ARRIVALS, return_value=False):
        single = make()
    with patch(LOOKAHEAD, return_value=False):
        return [chosen, single, make()]


@contextmanager
def packets_of(size: int) -> Iterator[None]:
    """Let ``size`` requests go to the core at a time."""
    with patch(PACKET, size):
        yield


def assert_same_by_the_clock(settings: ClusterSettings, trace: Trace, batches: bool | None = None) -> Run:
    """Return the core's run, which equals the runs with single arrivals and without lookahead.

    ``batches``: True if its requests must arrive in batches, False if singly, None for either.
    """
    opened = []

    def noted(cluster: Cluster) -> bool:
        opened.append(open_front_door(cluster))
        return opened[-1]

    with patch(SINGLE_ARRIVALS, noted):
        run = simulate(settings, trace)
    assert batches in (None, opened == [True])
    with patch(SINGLE_ARRIVALS, return_value=False):
        assert_same(run, simulate(settings, trace, options=RunOptions(check="full")))
    with patch(LOOKAHEAD, return_value=False):
        assert_same(run, simulate(settings, trace))
    return run


def agree_or_by_the_clock(*overrides: str, text: str = BASE, directory: Path | None = None) -> Run | str:
    """Return the core's run of a scenario, or the line that refuses it.

    The specification agrees; where it does not cover the scenario, runs with single arrivals and without
    lookahead agree.
    """
    try:
        return agree_on(*overrides, text=text, directory=directory)
    except BeyondSpec:
        scenario = load(*overrides, text=text, directory=directory)
        trace = read_requests(scenario)
    checked = RunOptions(check="full")
    made = by_the_clock(lambda: run_or_refusal(lambda: simulate(scenario.settings, trace, options=checked)))
    for other in made[1:]:
        if isinstance(made[0], str) or isinstance(other, str):
            assert made[0] == other
        else:
            assert_same(made[0], other)
    return made[0]
