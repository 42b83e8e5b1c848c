"""Any two settings together end in one line, or in one run, the specification's where it covers them."""

from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from support.examples import examples
from support.lookahead import agree_or_by_the_clock
from support.setting_effects import CHANGES
from support.setting_traces import filled


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.sampled_from(CHANGES), min_size=2, max_size=3, unique=True))
def test_settings_that_have_an_effect_alone_go_together_or_are_refused(rows, folder):
    said = [setting for row in rows for setting in row.given] + [row.assignment for row in rows]
    agree_or_by_the_clock(*filled(tuple(said), folder))
