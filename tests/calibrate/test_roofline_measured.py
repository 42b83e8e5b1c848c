"""The roofline against measurements: its rates fitted anew, and every given stage of real runs."""

import csv
import gzip

import numpy as np
import pytest
from best_rates import assert_best, assert_best_gemms, robust_loss
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.links import load_links
from support.docs_data import cells, figures_of, read_table
from support.h100_stages import measured, simulated, stage_rows
from support.shared_files import shared

GPUS = {"H100-SXM-80GB": "h100", "A100-SXM-80GB": "a100"}
HEAD_SIZE = 128


def kernel_rows(name: str, **only: str) -> dict[str, np.ndarray]:
    path = shared(f"calibration/{name}")
    text = gzip.decompress(path.read_bytes()).decode() if name.endswith(".gz") else path.read_text()
    rows = [row for row in csv.DictReader(text.splitlines()) if all(row[k] == v for k, v in only.items())]
    names = [name for name in rows[0] if name not in ("gpu", "engine", "phase", "mode")]
    return {name: np.array([float(row[name] or 0) for row in rows]) for name in names}


@pytest.mark.parametrize("gpu", GPUS)
def test_the_rates_of_a_gpu_file_are_those_of_its_kernels(gpu):
    """Products and prefill attention as best met; attention of decodes by its smallest and its largest batches."""
    spec = load_gpu(GPUS[gpu])
    rates = spec.kernels
    g = kernel_rows("gemm_bf16_h100_a100.csv.gz", gpu=gpu)
    assert_best_gemms(spec, rates, g["m"], g["n"], g["k"], g["time_ms"])
    a = kernel_rows("attention_bf16_h100_a100.csv.gz", gpu=gpu, phase="decode", head_dim=str(HEAD_SIZE))
    kv_bytes = 4 * a["batch"] * a["kv_heads"] * HEAD_SIZE * (a["past_kv"] + a["prompt_len"])
    fixed_ms, streamed = np.median(a["time_ms"][kv_bytes < 2e6]), kv_bytes >= 512 * 2**20
    assert rates.attention_us == pytest.approx(fixed_ms * 1e3, rel=0.02, abs=0.06)
    peak_ms = kv_bytes[streamed] / spec.memory_bytes_per_s * 1e3
    share = 1 / np.median((a["time_ms"][streamed] - fixed_ms) / peak_ms)
    assert rates.kv_efficiency == pytest.approx(share, rel=0.02, abs=0.06)
    p = kernel_rows("attention_bf16_h100_a100.csv.gz", gpu=gpu, phase="prefill", head_dim=str(HEAD_SIZE))
    peak_ms = 2 * p["batch"] * p["q_heads"] * HEAD_SIZE * p["prompt_len"] ** 2 / spec.bf16_flops * 1e3
    moved = 4 * p["batch"] * p["prompt_len"] * HEAD_SIZE * (p["q_heads"] + p["kv_heads"])
    io_ms, said = moved / spec.memory_bytes_per_s * 1e3, peak_ms > 0.01

    def relative(of, fixed_ms):
        ms = fixed_ms + peak_ms / of.attention_efficiency + io_ms * of.attention_io
        return (ms / p["time_ms"] - 1)[said]

    fixed_ms = min(np.linspace(0, 0.1, 401), key=lambda ms: robust_loss(relative(rates, ms), 0.1))
    names = ("attention_efficiency", "attention_io")
    assert_best(rates, lambda of: relative(of, fixed_ms), 0.1, names)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("degree", [2, 4, 8])
def test_packaged_all_reduces_are_the_measured_ones(gpu, degree):
    """From the smallest message to those of a step of some thousand tokens."""
    a = kernel_rows("allreduce_h100_a100.csv", gpu=gpu, num_gpus=str(degree), mode="vllm_graph")
    usual = a["message_elements"] <= 2**25
    table = load_links(load_gpu(GPUS[gpu]).links)
    assert table.ms(degree, a["message_elements"][usual] * 2) == pytest.approx(a["time_ms"][usual], rel=0.01)


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages")
    return {row["rate_rps"]: (measured(row), simulated(row, folder)) for row in stage_rows()}


@pytest.mark.parametrize("rate_rps", ["5", "8", "10", "20"])
def test_a_real_stage_on_an_h100_is_met(stages, rate_rps):
    """Llama-2-7B; of the run itself only the 8 ms between client and scheduler were taken."""
    real, ours = stages[rate_rps]
    assert ours.itl_ms == pytest.approx(real.itl_ms, rel=0.03)
    assert ours.e2e_ms == pytest.approx(real.e2e_ms, rel=0.03)
    assert ours.ttft_ms == pytest.approx(real.ttft_ms, rel=0.10)


def test_the_page_has_each_stage_and_says_what_comes_out(stages):
    assert {row[0] for row in read_table("h100-stages").rows} == set(stages)
    for rate_rps, (real, ours) in stages.items():
        given, errors = (figures_of(cell.replace(",", "")) for cell in cells("h100-stages", rate_rps)[:2])
        assert given == pytest.approx([real.ttft_ms, real.itl_ms, real.e2e_ms], rel=5e-3)
        ratios = (ours.ttft_ms / real.ttft_ms, ours.itl_ms / real.itl_ms, ours.e2e_ms / real.e2e_ms)
        assert errors == pytest.approx([100 * ratio - 100 for ratio in ratios], abs=0.06)
