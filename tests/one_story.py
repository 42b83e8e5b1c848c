"""What a scenario tells: one story in every way of running it, or one line."""

from __future__ import annotations

from kvcache_sim.errors import InvariantError, KvsimError
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions, simulate
from tiered_scenario import BASE, load

WAYS = (RunOptions(check="full"), RunOptions(step_every_iteration=True), RunOptions(backend="python"))


def assert_one_story(*settings: str, text: str = BASE) -> None:
    """Check that the core, single steps and the reference have equal digests, or refuse in the same line."""
    told = set()
    for options in WAYS:
        try:
            scenario = load(*settings, text=text)
            run = simulate(scenario.settings, read_requests(scenario), options=options)
            told.add((run.digest_events, run.digest_results))
        except InvariantError:
            raise
        except KvsimError as refused:
            told.add(str(refused))
    (one,) = told
    assert "\n" not in one
