"""Real servers: repeats and the half that is never looked at are left out; costs are fitted on others."""

import pytest
from hardware_extra import needs_library
from kvcache_sim.extras.calibrate.aiconfigurator.deployment import parse_deployment
from kvcache_sim.extras.calibrate.server_runs import (
    Launch,
    ServerRun,
    first_byte_is_odd,
    server_runs,
)
from kvcache_sim.extras.calibrate.servers import (
    Parts,
    by_kernels,
    predict_servers,
    server_errors,
    with_fitted_costs,
)
from support.docs_data import figures


def run_of(key: str, clients: int, ttft_ms: float, tpot_ms: float, prompt: int) -> ServerRun:
    deployment, label = parse_deployment("qwen3-32b@h100:tp2"), ("vllm", "1", "m")
    return ServerRun(deployment, Launch(), label, key, prompt, 115, clients, False, ttft_ms, tpot_ms)


@needs_library
def test_only_distinct_runs_of_the_even_half_are_read():
    runs, distinct = server_runs()
    assert distinct == 1985
    assert len(runs) == 908
    assert not any(first_byte_is_odd(run.configuration) for run in runs)
    assert len(set(runs)) == len(runs)
    tensor_degrees = {run.deployment.tensor_parallel for run in runs}
    assert tensor_degrees == {1, 2, 4, 8, 72}, "one machine has eight GPUs"


def test_known_costs_are_found_again_on_configurations_not_fitted_to():
    """Decode 1.3 times too fast, prompts 2 times, 4 ms of host a step.

    A first token takes 100 ms more, and 3 a client and 0.02 a token.
    """
    runs = []
    for number in range(60):
        clients, decode, prompts = 4 << number % 5, 2.0 + number % 13, 0.5 * (number % 11)
        waited, prompt = (2 + number % 4 * 12) * decode, 500 << number % 3
        parts = Parts(decode, prompts, 20.0 * clients, waited, 40.0 + 10 * (number % 3), 8.0)
        tpot = 1.3 * decode + 2 * prompts + 4
        later = parts.waited_ms * tpot / (decode + prompts) + parts.own_ms + parts.idle_ms
        ttft = 0.1 * 0.7 * parts.first_ms + 0.9 * 1.2 * later + 100 + 3 * clients + 0.02 * prompt
        run = run_of(f"k{number}", clients, ttft, tpot, prompt)
        runs.append(by_kernels(run, parts))
    before, after = server_errors(runs), server_errors(with_fitted_costs(runs))
    assert before.tpot_mean > 25
    assert before.ttft_mean > 40
    assert after.tpot_mean < 2
    assert after.ttft_mean < 4


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
