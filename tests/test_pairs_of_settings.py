"""Any two settings together end in one line, or in one story that all ways of running tell."""

from __future__ import annotations

from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from kvcache_sim.errors import InvariantError, KvsimError
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions, simulate
from setting_effects import CHANGES
from test_every_setting import filled, folder  # noqa: F401  (a fixture)
from tiered_scenario import load

WAYS = (RunOptions(check="full"), RunOptions(step_every_iteration=True), RunOptions(backend="python"))


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.sampled_from(CHANGES), min_size=2, max_size=3, unique=True))
def test_settings_that_have_an_effect_alone_go_together_or_are_refused(rows, folder):  # noqa: F811
    said = [setting for row in rows for setting in row.given] + [row.assignment for row in rows]
    told = set()
    for options in WAYS:
        try:
            scenario = load(*filled(tuple(said), folder))
            run = simulate(scenario.settings, read_requests(scenario), options=options)
            told.add((run.digest_events, run.digest_results))
        except InvariantError:
            raise
        except KvsimError as refused:
            told.add(str(refused))
    (one,) = told
    assert "\n" not in one
