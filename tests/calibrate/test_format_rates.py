"""Rates of GEMMs and experts by format: fitted anew to the measured kernels, and by hand."""

from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from best_rates import assert_best, assert_best_gemms
from hardware_extra import needs_library
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate.aiconfigurator.library import installed_folder
from kvcache_sim.model.format_rates import (
    UNMEASURED_EXPERTS,
    UNMEASURED_GEMMS,
    ExpertRates,
    FormatRates,
    GemmRates,
    format_rates,
)
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.roofline import roofline_step_time
from kvcache_sim.model.step_time import StepBatch
from msgspec.structs import replace
from support.product.models import gpu_names

GPUS = ("h100", "h200", "b200", "b300", "a100", "l40s", "rtx-pro-6000")
#: The library's name of a format, and the bits that a weight takes.
FORMATS = {
    "bf16": ("bfloat16", 16),
    "fp8": ("fp8_block", 8),
    "mxfp4": ("w4a16_mxfp4", 4.25),
    "int4": ("int4_wo", 4.25),
    "nvfp4": ("nvfp4", 4.5),
}
MEASURED = [(gpu, rates.dtype) for gpu in GPUS for rates in load_gpu(gpu).formats.experts]
GEMMS = [(gpu, rates.dtype) for gpu in GPUS for rates in load_gpu(gpu).formats.gemms]


def kernels_of(gpu: str, path: str, **only) -> dict[str, np.ndarray]:
    """Return the columns of the library's rows of a GPU."""
    system = {"l40s": "l40s", "rtx-pro-6000": "rtx_pro_6000_server"}.get(gpu, f"{gpu}_sxm")
    filters = [(key, "=", own) for key, own in only.items()]
    table = pq.read_table(installed_folder() / "systems/data" / system / path, filters=filters)
    found = zip(table.column_names, table.columns, strict=True)
    return {name: column.to_numpy() for name, column in found if column.type in (pa.int64(), pa.float64())}


def expert_rows(gpu: str, dtype: str) -> tuple[np.ndarray, ...]:
    """Return the rows of all experts on one rank, each chosen as often as others: what each layer reads, computes
    and moves in ms at peak rates, and its time.

    The A100 has rows of uneven choices alone: there as many experts count as even ones would need.
    """
    release, even = ("0.14.0", "power_law_1.01") if gpu == "a100" else ("0.24.0", "balanced")
    only = {"moe_dtype": FORMATS[dtype][0], "moe_ep_size": 1, "distribution": even}
    row = kernels_of(gpu, f"moe/vllm/{release}/moe_perf.parquet", **only)
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
    tokens, hidden, inter, active, experts, tp = (row[name].astype(float) for name in names)
    needed = np.minimum(experts, tokens * active)
    if gpu == "a100":
        needed = experts * (1 - (1 - active / experts) ** tokens)
    spec, weights = load_gpu(gpu), 3 * hidden * inter / tp
    per_ms = spec.memory_bytes_per_s / 1e3
    moved = 2 * tokens * active * (2 * hidden + 3 * inter / tp)
    read = needed * weights * FORMATS[dtype][1] / 8
    computed_ms = 2 * tokens * active * weights / spec.flops(dtype) * 1e3
    return read / per_ms, computed_ms, moved / per_ms, row["latency"]


@needs_library
@pytest.mark.parametrize(("gpu", "dtype"), MEASURED)
def test_the_rates_of_a_gpu_file_are_those_of_its_experts(gpu, dtype):
    *work, time_ms = expert_rows(gpu, dtype)
    own = next(rates for rates in load_gpu(gpu).formats.experts if rates.dtype == dtype)
    assert_best(own, lambda rates: rates.layer_ms(*work) / time_ms - 1, scale=0.1)
    off = own.layer_ms(*work) / time_ms - 1
    assert np.mean(np.abs(off)) < 0.18
    assert abs(np.mean(off)) < 0.08


@needs_library
@pytest.mark.parametrize(("gpu", "dtype"), GEMMS)
def test_the_rates_of_a_gpu_file_are_those_of_its_gemms(gpu, dtype):
    table = kernels_of(gpu, "gemm/vllm/0.24.0/gemm_perf.parquet", gemm_dtype=dtype)
    rates = next(rates for rates in load_gpu(gpu).formats.gemms if rates.dtype == dtype)
    assert_best_gemms(load_gpu(gpu), rates, *(table[name] for name in ("m", "n", "k", "latency")))


def test_formats_without_rows_have_the_medians_of_the_measured_gpus():
    for part, kinds in (("experts", UNMEASURED_EXPERTS), ("gemms", UNMEASURED_GEMMS)):
        for rates in kinds:
            listed = [getattr(load_gpu(gpu).formats, part) for gpu in gpu_names()]
            own = [asdict(each) for rows in listed for each in rows if each.dtype == rates.dtype]
            for key, value in asdict(rates).items():
                if key != "dtype":
                    assert value == pytest.approx(np.median([one[key] for one in own]), abs=0.06), key
    none, h100, b200 = FormatRates(), load_gpu("h100").formats, load_gpu("b200").formats
    asked = ("fp16", "mxfp8", "int8", "int4-g128", "fp4", "nvfp4")
    assert [none.expert(dtype).dtype for dtype in asked] == ["bf16", "fp8", "fp8", "int4", "mxfp4", "mxfp4"]
    assert b200.expert("fp4") == b200.expert("nvfp4") != b200.expert("mxfp4")
    assert h100.expert("nvfp4") == h100.expert("mxfp4") == h100.experts[2] != none.expert("mxfp4")
    gemms = [none.gemm(dtype) for dtype in ("fp8", "int8", "mxfp8", "bf16", "int4-g32", "mxfp4", "nvfp4")]
    assert gemms == [*UNMEASURED_GEMMS * 3, None, None, None, None]
    assert [h100.gemm("fp8"), b200.gemm("fp4")] == [h100.gemms[0], b200.gemms[1]]


def test_a_layer_by_hand():
    read, compute, moved = (np.array([ms]) for ms in (3.0, 1.0, 0.5))
    sums = ExpertRates("bf16", 20, 0.5, 0.25, 2.0, 1.0)
    assert sums.layer_ms(read, compute, moved) == pytest.approx([0.02 + 6 + 4 + 1])
    assert ExpertRates("bf16", 0, 0.5, 0.25, 2.0, 2.0).layer_ms(read, compute, moved) == pytest.approx(
        [61**0.5]
    )
    assert GemmRates("fp8", 9, 0.5, 0.125, 2.0).joined_ms(read, compute) == pytest.approx([10.0])


def test_a_models_linear_layers_take_the_rates_of_their_formats():
    """With rates of nothing but time a layer, what differs between two rooflines is that time."""
    gpu, model = load_gpu("h100"), load_model("qwen3-30b-a3b")
    free = {"weights": 1e9, "compute": 1e9, "exponent": 1.0}
    with_ms = []
    for fixed_us in (0.0, 100.0):
        own = FormatRates(
            (GemmRates("fp8", fixed_us, **free),), (ExpertRates("fp8", 3 * fixed_us, io=0.0, **free),)
        )
        weights = replace(model.weights, attention="fp8", experts="fp8")
        table = roofline_step_time(replace(model, weights=weights), replace(gpu, formats=own), 1).table(
            64, 64
        )
        with_ms.append(table.step(StepBatch((), 8, 8000, 1000)) / 1e6)
    assert with_ms[1] - with_ms[0] == pytest.approx(48 * (2 * 0.1 + 0.3), rel=1e-3)


GEMM = {"gemm_us": 1, "weights": 0.5, "compute": 0.5, "exponent": 1}
EXPERT = {"fixed_us": 1, "io": 0} | {key: GEMM[key] for key in ("weights", "compute", "exponent")}


@pytest.mark.parametrize(
    ("gemms", "experts", "words"),
    [
        ({}, {"int3": EXPERT}, "int3"),
        ({}, {"bf16": 3}, "bf16"),
        ({}, {"bf16": EXPERT | {"more": 1}}, "more"),
        ({}, {"bf16": EXPERT | {"weights": "x"}}, "weights"),
        ({}, {"fp8": {"weights": 1}}, "no fixed_us"),
        ({"bf16": GEMM}, {}, "bf16"),
        ({"fp8": {"gemm_us": 1}}, {}, "no weights"),
        ({"fp8": GEMM | {"gemm_us": -1}}, {}, "gemm_us is too small"),
        ({}, {"fp8": EXPERT | {"fixed_us": -1}}, "fixed_us is too small"),
        ({}, {"fp8": EXPERT | {"io": -0.1}}, "io is too small"),
        ({}, {"fp8": EXPERT | {"weights": 0}}, "weights is too small"),
        ({}, {"fp8": EXPERT | {"exponent": 0.9}}, "exponent is too small"),
    ],
)
def test_rates_of_a_gpu_file_are_refused_in_one_line(gemms, experts, words):
    with pytest.raises(UsageError, match=words) as refused:
        format_rates(gemms, experts, "my.toml: ")
    assert f"my.toml: [{'gemms' if gemms else 'experts'}]" in str(refused.value)
    found = format_rates({"nvfp4": GEMM}, {"source": "x", "fp8": EXPERT}, "")
    assert found == FormatRates((GemmRates("nvfp4", **GEMM),), (ExpertRates("fp8", **EXPERT),))
