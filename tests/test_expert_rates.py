"""Rates of a mixture's experts: fitted anew to the measured kernels, by hand, and on shapes that were left out."""

from dataclasses import asdict

import numpy as np
import pyarrow.parquet as pq
import pytest
from hardware_extra import needs_library
from kvcache_sim.errors import UsageError
from kvcache_sim.model.aiconfigurator.library import installed_folder
from kvcache_sim.model.expert_rates import UNMEASURED_EXPERTS, ExpertRates, expert_rates, rates_of_format
from kvcache_sim.model.gpus import gpu_names, load_gpu
from support.kernel_rates import ExpertRows
from support.kernel_rates import expert_rates as fitted

GPUS = {"h100": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "b300": "b300_sxm", "a100": "a100_sxm",
        "l40s": "l40s", "rtx-pro-6000": "rtx_pro_6000_server"}  # fmt: skip
#: The library's name of a format, and the bits that a weight takes.
FORMATS = {"bf16": ("bfloat16", 16), "fp8": ("fp8_block", 8), "mxfp4": ("w4a16_mxfp4", 4.25),
           "int4": ("int4_wo", 4.25), "nvfp4": ("nvfp4", 4.5)}  # fmt: skip
MEASURED = [(gpu, rates.dtype) for gpu in GPUS for rates in load_gpu(gpu).experts]


def measured(gpu: str, dtype: str) -> tuple[ExpertRows, np.ndarray]:
    """Return the rows of all experts on one rank, each chosen as often as others, and their shapes.

    The A100 has rows of uneven choices alone: there as many experts count as even ones would need.
    """
    release = "0.14.0" if gpu == "a100" else "0.24.0"
    path = installed_folder() / "systems/data" / GPUS[gpu] / "moe/vllm" / release / "moe_perf.parquet"
    table = pq.read_table(path).to_pydict()
    even = "power_law_1.01" if gpu == "a100" else "balanced"
    kept = [
        i
        for i, of in enumerate(
            zip(table["moe_dtype"], table["moe_ep_size"], table["distribution"], strict=True)
        )
        if of == (FORMATS[dtype][0], 1, even)
    ]
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "latency")
    tokens, hidden, inter, active, experts, tp, ms = (
        np.array([table[k][i] for i in kept], float) for k in names
    )
    needed = np.minimum(experts, tokens * active)
    if gpu == "a100":
        needed = experts * (1 - (1 - active / experts) ** tokens)
    spec, weights = load_gpu(gpu), 3 * hidden * inter / tp
    per_ms = spec.memory_bytes_per_s / 1e3
    moved = 2 * tokens * active * (2 * hidden + 3 * inter / tp)
    read = needed * weights * FORMATS[dtype][1] / 8
    rows = ExpertRows(
        read / per_ms, 2 * tokens * active * weights / spec.flops(dtype) * 1e3, moved / per_ms, ms
    )
    return rows, hidden * 1e6 + inter


def error(rates: dict[str, float], rows: ExpertRows) -> np.ndarray:
    times = ExpertRates("", **rates).layer_ms(rows.read_ms, rows.compute_ms, rows.moved_ms)
    return np.asarray(times / rows.time_ms - 1)


@needs_library
@pytest.mark.parametrize(("gpu", "dtype"), MEASURED)
def test_the_rates_of_a_gpu_file_are_those_of_its_experts(gpu, dtype):
    pytest.importorskip("scipy")
    rows, _ = measured(gpu, dtype)
    own = next(rates for rates in load_gpu(gpu).experts if rates.dtype == dtype)
    again = fitted(rows)
    for name, value in again.items():
        assert getattr(own, name) == pytest.approx(value, rel=0.02, abs=0.06), name
    off = error({key: value for key, value in asdict(own).items() if key != "dtype"}, rows)
    assert np.mean(np.abs(off)) < 0.18
    assert abs(np.mean(off)) < 0.08


@needs_library
@pytest.mark.parametrize(
    ("gpu", "dtype"), [("h100", "bf16"), ("h100", "fp8"), ("b200", "nvfp4"), ("l40s", "bf16")]
)
def test_shapes_that_were_left_out_are_met_as_well(gpu, dtype):
    pytest.importorskip("scipy")
    rows, shapes = measured(gpu, dtype)
    left_out = []
    for shape in np.unique(shapes):
        others, own = (ExpertRows(*(each[at] for each in rows)) for at in (shapes != shape, shapes == shape))
        left_out.append(np.mean(np.abs(error(fitted(others), own))))
    assert np.mean(left_out) < 0.2


def test_formats_without_rows_have_the_medians_of_the_measured_gpus():
    for dtype, rates in UNMEASURED_EXPERTS.items():
        own = [asdict(each) for gpu in gpu_names() for each in load_gpu(gpu).experts if each.dtype == dtype]
        for key, value in asdict(rates).items():
            assert key == "dtype" or value == pytest.approx(np.median([one[key] for one in own]), abs=0.06), (
                key
            )
    assert [rates_of_format((), dtype).dtype for dtype in ("fp16", "mxfp8", "int8", "int4-g128", "fp4", "nvfp4")] == [
        "bf16", "fp8", "fp8", "int4", "mxfp4", "mxfp4",
    ]  # fmt: skip
    assert rates_of_format(load_gpu("b200").experts, "fp4").dtype == "nvfp4"
    assert rates_of_format(load_gpu("h100").experts, "nvfp4") == rates_of_format(
        load_gpu("h100").experts, "mxfp4"
    )


def test_a_layer_of_experts_by_hand():
    read, compute, moved = (np.array([ms]) for ms in (3.0, 1.0, 0.5))
    sums = ExpertRates("bf16", 20, 0.5, 0.25, 2.0, 1.0)
    assert sums.layer_ms(read, compute, moved) == pytest.approx([0.02 + 6 + 4 + 1])
    assert ExpertRates("bf16", 0, 0.5, 0.25, 2.0, 2.0).layer_ms(read, compute, moved) == pytest.approx(
        [61**0.5]
    )


GIVEN = {"fixed_us": 1, "weights": 0.5, "compute": 0.5, "io": 0, "exponent": 1}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"int3": GIVEN}, "int3"), ({"bf16": 3}, "bf16"), ({"bf16": GIVEN | {"more": 1}}, "more"),
        ({"bf16": {**GIVEN, "weights": "x"}}, "weights"), ({"fp8": {"weights": 1}}, "no fixed_us"),
        *(({"fp8": GIVEN | {key: value}}, f"{key} is too small")
          for key, value in (("fixed_us", -1), ("weights", 0), ("compute", 0), ("io", -0.1), ("exponent", 0.9))),
    ],
)  # fmt: skip
def test_experts_of_a_gpu_file_are_refused_in_one_line(table, words):
    with pytest.raises(UsageError, match=words) as refused:
        expert_rates(table, "my.toml: [experts]")
    assert "my.toml: [experts]" in str(refused.value)
    assert expert_rates({"source": "x", "fp8": GIVEN}, "") == (ExpertRates("fp8", **GIVEN),)
