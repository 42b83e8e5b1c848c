"""Steps composed of a mixture's kernels: experts by the tokens and experts of a GPU, shared by ranks."""

import numpy as np
import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate.kernels import KernelTimes
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from rank_steps import shared_ns
from support.shared_files import shared

#: µs a layer of experts: 50 and a microsecond for each expert reached, and half of one for each token.
ROWS = [(n, k, 50 + k + n / 2) for n in (1, 16, 256, 2048) for k in (8, 64, 128) if k <= 8 * n]


def test_a_gpu_has_its_share_of_experts_and_of_pairs():
    """128 experts of which a token uses 8: one token reaches 8; very many reach all, 64 on each of two GPUs."""
    none, model = np.zeros(0), load_model("qwen3-30b-a3b")
    kernels = KernelTimes(48, none, none, none, none, none, np.array(ROWS))
    ms = kernels.experts_ms(np.array([1.0, 2048.0, 4096.0]), model, 1)
    assert ms == pytest.approx([48 * 0.0585, 48 * 1.202, 48 * 2.226])
    two = kernels.experts_ms(np.array([2048.0, 4096.0]), model, 2)
    assert two == pytest.approx([48 * 0.626, 48 * 1.138])


def test_kernels_of_a_mixture_are_fitted_for_two_ranks(tmp_path, capsys):
    kernels = str(shared("calibration/kernels_rtx_moe.csv.gz"))
    asked = [
        "calibrate",
        "fit",
        kernels,
        "--only",
        "tp=1",
        "--model",
        "qwen3-30b-a3b",
        "--gpu",
        "rtx-pro-6000",
    ]
    assert kvsim([*asked, "--ep", "2", "--dp", "2", "-o", str(tmp_path / "two.toml")]) == 0
    printed = capsys.readouterr().out
    mapes = {line.split()[0]: float(line.split()[2]) for line in printed.splitlines()[1:4]}
    assert mapes["decode"] < 1.5
    assert mapes["mixed"] < 4
    two = load_step_time(str(tmp_path / "two.toml")).table(4096, 256)
    roofline = load_step_time("roofline:qwen3-30b-a3b@rtx-pro-6000:ep2,dp2").table(4096, 256)
    for tokens in ([64, 64], [2048, 16], [2048, 2048]):
        assert shared_ns(two.shared, tokens) == pytest.approx(shared_ns(roofline.shared, tokens), rel=0.25), (
            tokens
        )
    for batch in (StepBatch((), 64, 64_000, 1000), StepBatch(((2048, 0),))):
        assert two.step(batch) == pytest.approx(roofline.step(batch), rel=0.3)
    assert kvsim([*asked[:3], "--only", "kind=dense", *asked[5:], "-o", str(tmp_path / "x.toml")]) == 2
