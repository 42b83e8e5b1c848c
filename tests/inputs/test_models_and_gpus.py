"""The packaged models and GPUs: every file loads, and its parameters are what its shape says."""

from dataclasses import replace

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.gpus import UNMEASURED, load_gpu
from kvcache_sim.model.model_file import load_model, model_names
from support.product.models import gpu_names, new_gpu

#: Links to a CPU's memory in the same package, and to memory that the CPU shares.
NVLINK_C2C, UNIFIED = 450_000_000_000, 136_500_000_000


def test_tensor_parallel_splits_kv_heads_and_repeats_a_latent():
    llama, deepseek = load_model("llama-3-8b"), load_model("deepseek-v3")
    assert llama.kv_bytes_per_token_per_gpu(4) == 131_072 // 4
    assert llama.kv_bytes_per_token_per_gpu(16) == 131_072 // 8
    assert deepseek.kv_bytes_per_token_per_gpu(8) == deepseek.kv_bytes_per_token


@pytest.mark.parametrize("name", model_names())
def test_parameters_follow_from_the_shape(name):
    """Check that the parameters a file states are the sum of its layers, but for norms, biases and positions.

    A vision tower has at most 15 % more, which are in the total alone.
    """
    m = load_model(name)
    counted = replace(m, stated_params=None)
    more = 0.15 if "vision" in m.source else 0.005 if not name.startswith("opt") else 0.015
    assert -0.005 <= m.params_total / counted.params_total - 1 <= more
    if name.startswith("opt"):
        return
    assert m.params_active == pytest.approx(counted.params_active, rel=0.005)


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_loads(name):
    gpu = load_gpu(name)
    assert gpu.source
    assert gpu.memory_bytes > 10e9
    assert gpu.fp8_flops >= gpu.bf16_flops > 2e13
    assert gpu.memory_bytes_per_s > gpu.nvlink_bytes_per_s >= 0
    pcie = (15_750_000_000, 31_500_000_000, 63_000_000_000, 126_000_000_000)
    assert gpu.pcie_bytes_per_s in (*pcie, NVLINK_C2C, UNIFIED)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("weights_efficiency = 0.0", "weights_efficiency is too small"),
        ("gemm_us = -1.0", "gemm_us is too small"),
        ("exponent = 0.5", "exponent is too small"),
        ("gap_us = nan", "gap_us must be finite"),
        ("small = 1.0", "did you mean small_us"),
        ("mixed_kv_range = [1.0]", "not a range"),
        ('mixed_kv_range = ["a", "b"]', "not a range"),
        ("mixed_kv_range = [2.0, 1.0]", "mixed_kv_range = [2.0, 1.0]"),
    ],
)
def test_rates_of_kernels_that_cannot_be_are_one_line(tmp_path, lines, says):
    """A custom GPU file with wrong ``[kernels]``; missing rates count as unmeasured."""
    head = new_gpu("h100").split("[kernels]")[0]
    path = tmp_path / "mine.toml"
    path.write_text(f"{head}[kernels]\n")
    assert load_gpu(str(path)).kernels == UNMEASURED
    path.write_text(f"{head}[kernels]\n{lines}\n")
    with pytest.raises(UsageError) as refused:
        load_gpu(str(path))
    assert says in str(refused.value)
