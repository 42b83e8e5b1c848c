"""Real servers: repeats and the half that is never looked at are left out; costs are fitted on others."""

import pytest
from hardware_extra import needs_library
from kvcache_sim.extras.calibrate.server_runs import first_byte_is_odd, server_runs
from kvcache_sim.extras.calibrate.servers import predict_servers, server_errors, with_fitted_costs
from support.docs_data import figures


@needs_library
def test_only_distinct_runs_of_the_even_half_are_read():
    runs, distinct = server_runs()
    assert distinct == 1985
    assert len(runs) == 908
    assert not any(first_byte_is_odd(run.configuration) for run in runs)
    assert len(set(runs)) == len(runs)
    tensor_degrees = {run.deployment.tensor_parallel for run in runs}
    assert tensor_degrees == {1, 2, 4, 8, 72}, "one machine has eight GPUs"


@needs_library
def test_the_page_states_what_the_command_finds():
    """One label of the table, of ten runs; all of them take a minute and a half."""
    label = ("sglang", "glm5-hopper", "zhipuai/GLM-5")
    predicted, missing = predict_servers(run for run in server_runs()[0] if run.label == label)
    assert not missing
    found = []
    for errors in (server_errors(predicted), server_errors(with_fitted_costs(predicted))):
        found += [errors.tpot_median, errors.tpot_mean, errors.ttft_median, errors.ttft_mean]
    row = figures("servers", "GLM-5 on H200 by itself: kernels alone; fitted")
    assert [figure for cell in row[1:] for figure in cell] == pytest.approx(
        [found[i] for i in (0, 1, 4, 5, 2, 3, 6, 7)], abs=0.051
    )
