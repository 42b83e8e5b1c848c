"""Real servers: repeats and the half that is never looked at are left out; costs are fitted on other configurations."""

import csv
from contextlib import nullcontext
from dataclasses import astuple, replace
from types import SimpleNamespace

import pytest
from hardware_extra import needs_library
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate import servers
from kvcache_sim.extras.calibrate.aiconfigurator.deployment import parse_deployment
from kvcache_sim.extras.calibrate.closed_loop import Load
from kvcache_sim.extras.calibrate.server_runs import (
    Launch,
    ServerRun,
    Workload,
    configuration_key,
    degrees_that_fit,
    first_byte_is_odd,
    launch_of,
    server_runs,
)
from kvcache_sim.extras.calibrate.servers import (
    Parts,
    Predicted,
    by_kernels,
    checkpoint_dtypes,
    far_off,
    loop_parts,
    predict_servers,
    server_errors,
    with_fitted_costs,
)
from support.docs_data import figures

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


def run_of(key: str, clients: int, ttft_ms: float, tpot_ms: float, prompt: int = 900, **changes) -> ServerRun:
    deployment = parse_deployment("qwen3-32b@h100:tp2")
    rest = {"launch": Launch(), "together": False} | changes
    return ServerRun(
        deployment=deployment,
        label=("vllm", "1", "m"),
        configuration=key,
        prompt_tokens=prompt,
        output_tokens=115,
        concurrency=clients,
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        **rest,
    )


def made(tpot_ms: float, real_tpot_ms: float, key: str) -> Predicted:
    run = run_of(key, 8, 2 * real_tpot_ms, real_tpot_ms)
    return by_kernels(run, Parts(tpot_ms, 0.0, 2 * tpot_ms, 0.0, 2 * tpot_ms, 0.0))


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
    tensor_degrees = {run.deployment.tensor_parallel for run in runs}
    assert tensor_degrees == {1, 2, 4, 8, 72}, "one machine has eight GPUs"


def test_costs_come_from_configurations_other_than_those_judged():
    """Runs that are alike get what the others are off by; one without others nothing."""
    keys = [str(k) for k in range(12)]
    same = [made(10.0, 15.0, key) for key in keys]
    assert server_errors(with_fitted_costs(same)).tpot_mean < 1
    assert [*astuple(server_errors(same))] == pytest.approx([12, *[100 / 3] * 4])
    alone = [made(10.0, 15.0, "0"), made(10.0, 16.0, "0")]
    assert with_fitted_costs(alone) == alone, "another load of the same configuration is no other"


def test_a_label_without_other_configurations_has_its_engines_first_token_costs():
    """Eleven labels whose first token takes 100 ms more than kernels say; a twelfth has one run, of 150 ms more."""

    def one(label: int, engine: str, ttft_ms: float) -> Predicted:
        run = replace(run_of(f"k{label}", 8, ttft_ms, 10.0), label=(engine, "1", f"m{label}"))
        return by_kernels(run, Parts(10.0, 0.0, 50.0, 0.0, 50.0, 0.0))

    same = [one(label, "vllm", 150.0) for label in range(11)]
    (*_, other) = with_fitted_costs([*same, one(11, "vllm", 200.0)])
    assert other.ttft_ms == pytest.approx(150, rel=0.03)
    assert other.tpot_ms == pytest.approx(10)
    (*_, alone) = with_fitted_costs([*same, one(11, "sglang", 200.0)])
    assert alone.ttft_ms == pytest.approx(50), "another engine's front end says nothing"


def test_the_first_of_ten_rounds_is_a_tenth_of_a_mean():
    predicted = by_kernels(run_of("k", 8, 1.0, 1.0), Parts(10.0, 2.0, 500.0, 30.0, 20.0, 5.0))
    assert predicted.ttft_ms == pytest.approx(0.1 * 500 + 0.9 * 55)
    assert predicted.tpot_ms == pytest.approx(12.0)


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
    """Decode 1.3 times too fast, prompts 2 times, 4 ms of host a step; 100 ms of a first token, 3 a client, 0.02 a token."""
    runs = []
    for number in range(60):
        clients, decode, prompts = 4 << number % 5, 2.0 + number % 13, 0.5 * (number % 11)
        waited, prompt = (2 + number % 4 * 12) * decode, 500 << number % 3
        parts = Parts(decode, prompts, 20.0 * clients, waited, 40.0 + 10 * (number % 3), 8.0)
        tpot = 1.3 * decode + 2 * prompts + 4
        later = parts.waited_ms * tpot / (decode + prompts) + parts.own_ms + parts.idle_ms
        ttft = 0.1 * 0.7 * parts.first_ms + 0.9 * 1.2 * later + 100 + 3 * clients + 0.02 * prompt
        run = run_of(f"k{number}", clients, ttft, tpot, prompt=prompt)
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


@pytest.mark.parametrize(
    ("system", "labelled", "meant"),
    [
        ("b200_sxm", (64, 1, 8), (8, 1, 8)),
        ("b300_sxm", (16, 1, 4), (4, 1, 4)),
        ("b200_sxm", (4, 4, 16), (1, 4, 4)),
        ("h200_sxm", (2, 2, 4), (2, 2, 4)),
        ("h100_sxm", (8, 1, 8), (8, 1, 8)),
        ("b200_sxm", (16, 1, 8), (16, 1, 8)),
        ("gb200", (16, 1, 4), (16, 1, 4)),
    ],
)
def test_degrees_that_no_machine_has_are_put_right_where_their_rule_is_known(system, labelled, meant):
    assert degrees_that_fit(system, *labelled) == meant


@pytest.mark.parametrize(
    ("engine", "version", "workload", "public", "launch"),
    [
        ("vllm", "0.12.0", ("Qwen/Qwen3-32B", "h100_sxm", "bf16", 1, 8), False, (8192, True, False, 1)),
        ("vllm", "0.19.0", ("Qwen/Qwen3-32B", "h100_sxm", "bf16", 1, 8), False, (8192, True, True, 1)),
        ("vllm", "", ("meta-llama/Llama-3.1-70B", "h100_sxm", "fp8", 1, 8), True, (8192, True, True, 1)),
        ("vllm", "nightly-5b8", ("MiniMaxAI/M", "h200_sxm", "fp8", 4, 8), True, (8192, True, True, 1)),
        ("vllm", "0.19.0", ("MiniMaxAI/MiniMax-M2.5", "b200_sxm", "fp4", 4, 8), True, (2048, True, True, 1)),
        ("sglang", "0.5.1", ("Qwen/Qwen3-32B", "h100_sxm", "bf16", 1, 64), False, (8192, False, True, 1)),
        ("sglang", "", ("deepseek-ai/DeepSeek-R1", "b200_sxm", "fp4", 8, 16), True, (16384, False, True, 30)),
        ("sglang", "", ("deepseek-ai/DeepSeek-R1", "b200_sxm", "fp4", 8, 15), True, (16384, False, True, 10)),
        ("sglang", "", ("deepseek-ai/DeepSeek-V3", "b300_sxm", "fp8", 8, 64), True, (32768, False, True, 30)),
        ("sglang", "", ("deepseek-ai/DeepSeek-V3", "b200_sxm", "fp8", 4, 64), True, (8192, False, True, 10)),
        ("sglang", "", ("deepseek-ai/DeepSeek-V3", "h200_sxm", "fp8", 8, 64), True, (32768, False, True, 1)),
        ("sglang", "", ("Qwen/Qwen3.5-397B-A17B", "h200_sxm", "fp8", 8, 64), True, (16384, False, True, 1)),
        ("sglang", "", ("Qwen/Qwen3.5-397B-A17B", "b200_sxm", "fp4", 4, 4), True, (32768, False, True, 30)),
        ("sglang", "", ("Qwen/Qwen3.5-397B-A17B", "b200_sxm", "bf16", 4, 4), True, (32768, False, True, 10)),
        ("sglang", "", ("Qwen/Qwen3.5-397B-A17B", "b300_sxm", "fp8", 4, 64), True, (16384, False, True, 10)),
        ("sglang", "", ("Qwen/Qwen3.5-397B-A17B", "b300_sxm", "bf16", 4, 64), True, (32768, False, True, 30)),
        ("sglang", "", ("Qwen/Qwen3.5-397B-A17B", "b200_sxm", "fp8", 4, 4), True, (32768, False, True, 10)),
        ("sglang", "", ("zhipuai/GLM-5", "b200_sxm", "fp8", 8, 64), True, (32768, False, True, 1)),
        ("sglang", "", ("zhipuai/GLM-5", "h200_sxm", "fp8", 8, 64), True, (8192, False, True, 1)),
    ],
)
def test_a_server_has_the_rules_that_its_script_gave_it(engine, version, workload, public, launch):
    assert launch_of(engine, version, Workload(*workload, 1024), public=public) == Launch(*launch)


def test_the_parts_of_a_loop_add_up():
    """A decode step 10 ms, a prompt 50 more, eight clients of a server that looks for requests at each step."""

    def times(new: int, past: int, decodes: int, kv_tokens: int) -> float:
        return 10.0 * (decodes > 0) + 50.0 * (new > 0)

    client = 8 + 0.0006 * 900
    parts = loop_parts(times, run_of("k", 8, 1.0, 1.0, together=True))
    expected = Parts(10.0, 0.0, 50 + client, 0.0, 50.0, client)
    figures = [getattr(parts, name) for name in Parts.__slots__]
    assert figures == pytest.approx([getattr(expected, name) for name in Parts.__slots__])
    assert servers._load(run_of("k", 8, 1.0, 1.0, together=True), 8) == Load(8, [900] * 80, [115] * 80)
    spread = loop_parts(times, run_of("k", 8, 1.0, 1.0))
    assert spread.decode_ms == pytest.approx(10.0)
    assert 50 <= spread.own_ms < 75
    assert spread.waited_ms == pytest.approx(30), "one that ran, one decided on, and that of the prompt"
    assert spread.idle_ms == pytest.approx(0)
    assert by_kernels(run_of("k", 8, 1.0, 1.0), expected).ttft_ms == pytest.approx(50 + client)


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


def test_steps_are_asked_for_once_with_kv_in_three_digits(monkeypatch):
    asked = []
    kernels = SimpleNamespace(asked=lambda: nullcontext(lambda *step: asked.append(step) or float(step[3])))
    steps = [
        (8, 1, 2, 7),
        (8, 1, 2, 999),
        (8, 1, 2, 1001),
        (8, 1, 2, 1009),
        (8, 1, 2, 12_345),
        (8, 1, 2, 12_399),
    ]
    monkeypatch.setattr(servers, "loop_parts", lambda times, run: [times(*step) for step in steps])
    assert servers._parts(kernels, ["run"]) == [[7.0, 999.0, 1000.0, 1000.0, 12_300.0, 12_300.0]]
    assert [step[3] for step in asked] == [7, 999, 1000, 12_300]


# fmt: off
def test_runs_have_kernels_of_the_checkpoints_formats_or_of_the_labels_or_none(monkeypatch):
    """Scaled in blocks are those of two GPUs; no kernels of four GPUs, and on two only the label's if asked."""
    deployments = {tp: parse_deployment(f"qwen3-235b-a22b@h200:tp{tp},fp8") for tp in (1, 2, 4)}
    asked, lacking = [], {4}

    def measured(deployment, repairs):
        asked.append((deployment.tensor_parallel, deployment.dtypes.weights, repairs == (*servers.REPAIRS, *servers.LABEL_REPAIRS)))
        if deployment.tensor_parallel in lacking or (deployment.tensor_parallel, deployment.dtypes.weights) in lacking:
            raise UsageError("no kernels")
        return deployment.dtypes.weights

    monkeypatch.setattr(servers, "model_configuration", lambda model: {"quantization_config": {"weight_block_size": [128, 128]}})
    monkeypatch.setattr(servers, "measured_kernels", measured)
    monkeypatch.setattr(servers, "_parts", lambda kernels, own: [Parts(len(kernels), n, 0.0, 0.0, 0.0, 0.0) for n, _ in enumerate(own)])
    lacking.add((2, "fp8_block"))
    runs = [replace(run_of(f"{k}", 8, 1.0, 1.0), deployment=deployments[tp]) for k, tp in enumerate((1, 4, 2, 1, 4))]
    found, missing = predict_servers(runs)
    assert [(one.run, one.tpot_ms) for one in found] == [(runs[0], 9), (runs[3], 10), (runs[2], 3)]
    assert missing == {"no kernels": 2}
    assert asked == [(1, "fp8_block", True), (4, "fp8_block", True), (4, "fp8", True), (2, "fp8_block", True), (2, "fp8", True)]
    monkeypatch.setattr(servers, "model_configuration", lambda model: {})
    asked.clear()
    assert servers._kernels(deployments[1]) == "fp8"
    assert len(asked) == 1
