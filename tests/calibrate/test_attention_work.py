"""Operations and bytes of attention in a step, by kind, in closed form, and a roofline that follows them."""

from dataclasses import replace

import pytest
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.roofline import attention_work
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time

EACH = 18 * 4 * 64 * 64
STATES = 21 * 16 * 640 * 4 + 20 * 256 * 512 * 4
#: Model → its TP degree, and operations a pair and a token, and bytes a past token and a sequence; None: any.
WORK = {
    "llama-3-8b": (1, 32 * 4 * 32 * 128, 0, 131_072, 0),
    "gpt-oss-120b": (1, EACH, 128 * EACH, 36_864, 18 * 128 * 2048),  # a window has a fixed amount
    "llama-4-scout": (1, None, None, 48 * 4096, 0),  # a long chunk counts as attention to all
    "qwen3.5-35b-a3b": (1, None, None, 20_480, 2 * 30 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)),  # a state
    "deepseek-v3.2": (8, 61 * 2 * 64 * 128, 61 * 2048 * 2 * 128 * 320, 61 * 132, 61 * 2048 * 1152),
    "deepseek-v4-flash": (
        4,
        None,
        None,
        21 * 64 / 4 + 20 * 512 / 128,
        43 * 128 * 512 + 21 * 512 * 512 + 2 * STATES,
    ),
}


@pytest.mark.parametrize("model", WORK)
def test_attention_reads_and_computes_what_its_kinds_need(model):
    degree, *expected = WORK[model]
    spec = load_model(model)
    work = attention_work(replace(spec, kv_dtype="fp8") if "v4" in model else spec, degree)
    found = (work.flops_per_pair, work.flops_per_token)
    found += (work.read_bytes_per_past_token, work.read_bytes_per_sequence)
    for own, wanted in zip(found, expected, strict=True):
        assert wanted is None or own == pytest.approx(wanted, rel=1e-12)


def test_gpus_share_the_bytes_of_heads():
    assert attention_work(load_model("llama-3-8b"), 4).read_bytes_per_past_token == 131_072 / 4


@pytest.mark.parametrize(
    ("sparse", "full", "gpu"),
    [("deepseek-v3.2", "deepseek-v3", "b300:tp8"), ("gpt-oss-120b", "qwen3-235b-a22b", "b300:tp8")],
)
def test_a_model_that_reads_less_of_a_long_context_takes_less_for_more_of_it(sparse, full, gpu):
    def growth(model):
        source = load_step_time(f"roofline:{model}@{gpu}")
        short, long = (source.step(StepBatch((), 32, 32 * kv, kv)) for kv in (4096, 65_536))
        return long - short

    assert 0 < growth(sparse) < growth(full)
