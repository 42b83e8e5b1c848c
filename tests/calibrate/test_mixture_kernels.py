"""Steps composed of a mixture's kernels: experts by the tokens and experts of a GPU, shared by ranks."""

import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from rank_steps import shared_ns
from support.shared_files import shared


def test_kernels_of_a_mixture_are_fitted_for_two_ranks(tmp_path, capsys):
    kernels = str(shared("calibration/kernels_rtx_moe.csv.gz"))
    asked = ["calibrate", "fit", kernels, "--model", "qwen3-30b-a3b", "--gpu", "rtx-pro-6000"]
    both = [*asked, "--only", "tp=1", "--ep", "2", "--dp", "2"]
    assert kvsim([*both, "-o", str(tmp_path / "two.toml")]) == 0
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
    assert kvsim([*asked, "--only", "kind=dense", "-o", str(tmp_path / "x.toml")]) == 2
