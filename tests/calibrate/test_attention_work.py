"""Operations and bytes of attention in a step, by kind, in closed form, and a roofline that follows them."""

from dataclasses import replace

import pytest
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.roofline import attention_work
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time


def test_full_attention_reads_all_of_its_kv_and_pairs_every_token():
    work = attention_work(load_model("llama-3-8b"), 1)
    assert work.flops_per_pair == 32 * 4 * 32 * 128
    assert work.read_bytes_per_past_token == 131_072
    assert (work.flops_per_token, work.read_bytes_per_sequence) == (0, 0)
    assert attention_work(load_model("llama-3-8b"), 4).read_bytes_per_past_token == 131_072 / 4


def test_a_window_costs_a_token_and_a_sequence_a_fixed_amount():
    work = attention_work(load_model("gpt-oss-120b"), 1)
    each = 4 * 64 * 64
    assert work.flops_per_pair == 18 * each
    assert work.flops_per_token == 18 * 128 * each
    assert work.read_bytes_per_past_token == 36_864
    assert work.read_bytes_per_sequence == 18 * 128 * 2048


def test_a_long_chunk_counts_as_attention_to_all():
    work = attention_work(load_model("llama-4-scout"), 1)
    assert work.read_bytes_per_past_token == 48 * 4096
    assert work.read_bytes_per_sequence == 0


def test_a_state_is_read_and_written():
    work = attention_work(load_model("qwen3.5-35b-a3b"), 1)
    assert work.read_bytes_per_past_token == 20_480
    assert work.read_bytes_per_sequence == 2 * 30 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)


def test_an_indexer_scans_keys_and_chooses_latents():
    work = attention_work(load_model("deepseek-v3.2"), 8)
    assert work.read_bytes_per_past_token == 61 * 132
    assert work.read_bytes_per_sequence == 61 * 2048 * 1152
    assert work.flops_per_pair == 61 * 2 * 64 * 128
    assert work.flops_per_token == 61 * 2048 * 2 * 128 * (128 + 64 + 128)


def test_compressed_latents_are_scanned_at_their_ratio():
    work = attention_work(replace(load_model("deepseek-v4-flash"), kv_dtype="fp8"), 4)
    assert work.read_bytes_per_past_token == pytest.approx(21 * 64 / 4 + 20 * 512 / 128)
    states = 21 * 16 * 640 * 4 + 20 * 256 * 512 * 4
    assert work.read_bytes_per_sequence == 43 * 128 * 512 + 21 * 512 * 512 + 2 * states


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
