"""Real servers: repeats and the half that is never looked at are left out; costs are fitted on other configurations."""

import csv

import pytest
from hardware_extra import needs_library
from kvcache_sim.model.aiconfigurator.deployment import parse_deployment
from kvcache_sim.model.calibration.server_costs import with_fitted_costs
from kvcache_sim.model.calibration.servers import (
    Parts,
    Predicted,
    ServerRun,
    by_kernels,
    checkpoint_dtypes,
    configuration_key,
    far_off,
    first_byte_is_odd,
    predict_servers,
    server_errors,
    server_runs,
)

ROW = {
    "backend": "vllm",
    "model_path": "Qwen/Qwen3-32B",
    "system": "h100_sxm",
    "precision": "fp8",
    "isl": "1024",
    "osl": "128",
    "tp_size": "2.0",
    "pp_size": "1.0",
    "attention_dp_size": "",
    "moe_tp_size": "1.0",
    "moe_ep_size": "1.0",
}


def made(tpot_ms: float, real_tpot_ms: float, key: str) -> Predicted:
    deployment = parse_deployment("qwen3-32b@h100:tp2")
    run = ServerRun(deployment, ("vllm", "1", "m"), key, 900, 115, 8, 2 * real_tpot_ms, real_tpot_ms)
    return by_kernels(run, Parts(tpot_ms, 0.0, 2 * tpot_ms, 2 * tpot_ms))


def test_a_configuration_is_named_as_the_split_has_it():
    key = configuration_key(ROW)
    assert key == "vllm|Qwen/Qwen3-32B|h100_sxm|fp8|1024|128|2|1||1|1"
    assert [first_byte_is_odd(text) for text in "abef"] == [False, False, True, True]


@needs_library
def test_only_distinct_runs_of_the_even_half_are_read():
    runs, distinct = server_runs()
    assert distinct == 1985
    assert len(runs) == 908
    assert not any(first_byte_is_odd(run.configuration) for run in runs)
    assert len(set(runs)) == len(runs)


@needs_library
def test_kernels_alone_are_near_a_dense_run():
    runs = [run for run in server_runs()[0] if run.label[0] == "vllm" and "Qwen3-32B" in run.label[2]][:12]
    predicted, missing = predict_servers(runs)
    assert not missing
    assert server_errors(predicted).tpot_median < 35


def test_costs_come_from_configurations_other_than_those_judged():
    """Runs that are alike get what the others are off by; one without others nothing."""
    keys = [str(k) for k in range(40)]
    same = [made(10.0, 15.0, key) for key in keys]
    assert server_errors(with_fitted_costs(same)).tpot_mean < 1
    assert server_errors(same).tpot_mean == pytest.approx(100 / 3)
    alone = [made(10.0, 15.0, "0")]
    assert with_fitted_costs(alone) == alone


def test_runs_far_off_are_listed_by_their_label():
    runs = [made(10.0, 15.0, "0"), made(10.0, 17.0, "1"), made(17.0, 10.0, "2")]
    assert far_off(runs) == [(("vllm", "1", "m"), "h100_sxm", 2, 3)]
    assert far_off(runs[:1]) == []


def test_the_file_is_read_by_its_header(tmp_path):
    more = {
        "mode": "agg",
        "gemm_quant_mode": "fp8",
        "moe_quant_mode": "",
        "batch_size": "8.0",
        "backend_version": "1",
    }
    more |= {
        "silicon_ttft_ms": "50",
        "silicon_tpot_ms": "10",
        "id": "x",
        "silicon_data_source": "silicon_concurrency=16;",
    }
    path = tmp_path / "sample.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*ROW, *more])
        writer.writeheader()
        for isl in range(1000, 1040):
            for number in ("a", "b"):
                writer.writerow({**ROW, **more, "isl": str(isl), "id": number})
    runs, distinct = server_runs(path)
    assert distinct == 40, "the same figures under two ids are one run"
    assert 5 < len(runs) < 35
    assert {run.concurrency for run in runs} == {16}


def test_known_costs_are_found_again_on_configurations_not_fitted_to():
    """Kernels 1.3 times too fast, prompts 2 times, 4 ms of host a step, 100 ms of a first token, 3 a client."""
    runs = []
    for number in range(60):
        clients, decode, prompts = 4 << number % 5, 8.0 + number % 7, 0.5 * (number % 11)
        parts = Parts(decode, prompts, 20.0 * clients, 40.0 + 10 * (number % 3))
        tpot = 1.3 * decode + 2 * prompts + 4
        ttft = 0.3 * parts.together_ms + parts.alone_ms + 100 + 3 * clients
        deployment = parse_deployment("qwen3-32b@h100:tp2")
        run = ServerRun(deployment, ("vllm", "1", "m"), f"k{number}", 900, 115, clients, ttft, tpot)
        runs.append(by_kernels(run, parts))
    before, after = server_errors(runs), server_errors(with_fitted_costs(runs))
    assert before.tpot_mean > 25
    assert before.ttft_mean > 40
    assert after.tpot_mean < 2
    assert after.ttft_mean < 4


def test_a_checkpoint_scaled_in_blocks_is_so_whatever_its_label_says():
    blocks = {"quantization_config": {"weight_block_size": [128, 128]}}
    for spelling, weights, experts in (
        ("qwen3-235b-a22b@h200:tp4,fp8", "fp8_block", "fp8_block"),
        ("qwen3-235b-a22b@b200:tp4,fp8", "fp8", "fp8_block"),
        ("qwen3-235b-a22b@h200:tp4,nvfp4", "nvfp4", "nvfp4"),
    ):
        deployment = parse_deployment(spelling)
        found = checkpoint_dtypes(deployment, blocks)
        assert (found.weights, found.experts) == (weights, experts)
        assert checkpoint_dtypes(deployment, {}) == deployment.dtypes
