"""Step times from a log of requests alone: known sets are found again, and terms that a log cannot
separate are named."""

import json
from dataclasses import replace

import kvcache_sim as kv
import numpy as np
import pytest
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.host_fit import fit_host
from kvcache_sim.extras.calibrate.request_fit import fit_requests
from kvcache_sim.extras.calibrate.request_steps import TimedRequests, measured_sums
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.served_kernels import is_sum_of_kernels
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time

BUDGET = 4096
KNOWN = """
model = "llama-3-8b"
[coefficients]
weights_ms = 9.0
token_ms = 0.02
exponent = 1.0
kv_ms_per_thousand = 0.05
kv_mixed_ms_per_thousand = 0.05
pairs_ms_per_million = 2.0
graph_tokens = 0
"""


def served(folder, step_time, rate, count, lengths=(50, 6000), offset_ms=0, **host):
    """Return the log of Poisson arrivals of prompts, log-uniform in their lengths, that share nothing."""
    draw = np.random.default_rng(13)
    sent = np.cumsum(draw.exponential(1000 / rate, count))
    prompts = np.exp(draw.uniform(*np.log(lengths), count)).astype(int)
    answers = draw.integers(2, 200, count)
    rows, first = [], 0
    for time, prompt, answer in zip(sent.tolist(), prompts.tolist(), answers.tolist(), strict=True):
        blocks = list(range(first, first - (-prompt // 512)))
        first += len(blocks)
        row = {"timestamp": time, "input_length": prompt, "output_length": answer, "hash_ids": blocks}
        rows.append(json.dumps(row))
    trace = folder / "trace.jsonl"
    trace.write_text("\n".join(rows) + "\n")
    replica = {"step_time": step_time, "max_num_batched_tokens": BUDGET, "client_offset": f"{offset_ms}ms"}
    if is_sum_of_kernels(step_time):  # the set's own steps, so that it can be found again
        replica |= {"sustained_clocks": False, "sampling": "plain", **host}
    found = kv.simulate(trace, replica=replica, **{"tiers.gpu.capacity": "unbounded"}).finished.requests
    arrival, to_first, to_last = (found[f"{name}_ns"] / 1e9 for name in ("arrival", "first_token", "finish"))
    tokens = (found[name].astype(float) for name in ("input_tokens", "output_tokens"))
    return TimedRequests(arrival, to_first - arrival, to_last - arrival, *tokens, np.zeros(count))


def by_name(fitted):
    return {term.name: term for term in fitted.terms}


def vllm_log(log):
    """Return what ``vllm bench serve --save-detailed`` writes of these requests."""
    each = zip(log.e2e_s, log.ttft_s, log.output_tokens, strict=True)
    gaps = [[(e2e - ttft) / (n - 1)] * int(n - 1) for e2e, ttft, n in each]
    return json.dumps(
        {
            "ttfts": log.ttft_s.tolist(),
            "itls": gaps,
            "input_lens": log.prompt_tokens.astype(int).tolist(),
            "output_lens": log.output_tokens.astype(int).tolist(),
            "start_times": (1000.5 + log.sent_s).tolist(),
            "errors": [""] * len(log),
        }
    )


@pytest.fixture(scope="module")
def known_log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("known")
    (folder / "known.toml").write_text(KNOWN)
    return served(folder, str(folder / "known.toml"), 6, 500, offset_ms=5)


def test_the_true_set_gives_the_sums_that_were_measured(tmp_path):
    """TPOT within 1 %; a TTFT meets half a step on average, which is all that it is off by."""
    name = "h100-llama-3-8b-tp1"
    log = served(tmp_path, name, 6, 400)
    sums = measured_sums(log, BUDGET)
    error = sums.sums(predict_ms(load_step_time(name), sums.steps)[:, None])[:, 0] / sums.measured_ms - 1
    assert np.abs(error[~sums.to_first]).mean() < 0.01
    assert abs(error[sums.to_first].mean()) < 0.04


def test_a_known_set_is_found_again(known_log):
    fitted = fit_requests(known_log, BUDGET)
    truth = {"KV that a decode reads": (0.05, 0.15), "client and queue before the scheduler": (5.0, 0.35)}
    found = by_name(fitted)
    for name, (value, tolerance) in truth.items():
        assert found[name].value == pytest.approx(value, rel=tolerance), name
    for batch in (
        StepBatch((), 2, 3000, 1500),
        StepBatch((), 8, 12000, 1500),
        StepBatch(((1000, 0),)),
        StepBatch(((3500, 0),)),
    ):
        n, new = batch.decode_sequences, sum(new for new, _ in batch.prefill_chunks)
        pairs_ms = 2.0 * sum(new * new / 2 for new, _ in batch.prefill_chunks) / 1e6
        true_ms = 9 + 0.02 * (n + new) + 0.05 * batch.decode_kv_tokens / 1e3 + pairs_ms
        assert fitted.model.step(batch) / 1e6 == pytest.approx(true_ms, rel=0.04), batch
    tpot, ttft = fitted.errors
    assert tpot.mape < 1.5
    assert abs(ttft.bias) < 4
    for term in fitted.terms:
        assert term.low <= term.high


def test_a_few_answers_of_wrong_times_move_a_fit_little(known_log):
    """Every tenth took a quarter as long as its steps do."""
    share = np.where(np.arange(len(known_log)) % 10, 1, 0.25)
    answer_s = known_log.e2e_s - known_log.ttft_s
    late = replace(known_log, e2e_s=known_log.ttft_s + share * answer_s)
    found, known = (fit_requests(log, BUDGET).model for log in (late, known_log))
    for batch in (StepBatch((), 2, 3000, 1500), StepBatch((), 8, 12000, 1500), StepBatch(((3500, 0),))):
        assert found.step(batch) == pytest.approx(known.step(batch), rel=0.1), batch


def test_prompts_of_one_length_do_not_separate_attention_from_the_rest(tmp_path):
    (tmp_path / "known.toml").write_text(KNOWN)
    log = served(tmp_path, str(tmp_path / "known.toml"), 4, 150, lengths=(2000, 2000.5))
    term = by_name(fit_requests(log, BUDGET))["a prompt's attention to itself"]
    assert term.unclear


def test_the_command_writes_a_set_and_says_its_intervals(tmp_path, capsys, known_log):
    (tmp_path / "bench.json").write_text(vllm_log(known_log))
    out = tmp_path / "mine.toml"
    asked = ["calibrate", "requests", str(tmp_path / "bench.json"), "-o", str(out)]
    assert kvsim([*asked, "--max-num-batched-tokens", str(BUDGET), "--gpu", "h100"]) == 0
    text = capsys.readouterr()
    assert "90 % interval" in text.out
    assert "requests held out: mean |error|" in text.out
    assert "--set replica.client_offset=" in text.err
    assert "does not say what a prefix cache served" in text.err
    batch = StepBatch((), 2, 3000, 1500)
    assert load_step_time(str(out)).step(batch) / 1e6 == pytest.approx(9.19, rel=0.03)
    assert 'gpu = "h100"' in out.read_text()
    assert "[held_out.decode]" in out.read_text()
    assert kvsim(asked) != 0  # an existing file is not overwritten
    assert "exists" in capsys.readouterr().err


@pytest.fixture(scope="module")
def hosted_log(tmp_path_factory):
    times = {"step_extra": "2ms", "launch_per_layer": "1500us", "client_offset_per_token": "4us"}
    folder = tmp_path_factory.mktemp("hosted")
    return served(folder, ROOFLINE, 5, 400, offset_ms=20, sustained_clocks=True, **times)


ROOFLINE = "roofline:llama-3-8b@h100"


def test_the_times_of_a_host_are_found_again(hosted_log):
    found = fit_host(hosted_log, ROOFLINE, load_model("llama-3-8b"), BUDGET)
    assert found.times.step == pytest.approx(2, rel=0.1)
    assert found.times.launch == pytest.approx(1.5, rel=0.15)
    assert found.times.client == pytest.approx(20, rel=0.2)
    assert found.times.token == pytest.approx(0.004, rel=0.25)
    for without, own in found.errors.values():
        assert own < without / 3
    assert all(low <= at <= high for low, at, high in zip(found.low, found.times, found.high, strict=True))


def test_the_command_prints_the_settings_of_a_host_and_refuses_a_source_that_has_one(
    hosted_log, tmp_path, capsys
):
    log = tmp_path / "bench.json"
    log.write_text(vllm_log(hosted_log))
    assert kvsim(["calibrate", "host", str(log), ROOFLINE, "--max-num-batched-tokens", str(BUDGET)]) == 0
    printed = capsys.readouterr()
    assert "replica.step_extra" in printed.out
    assert "--set replica.host=none" in printed.err
    assert kvsim(["calibrate", "host", str(log), "h100-llama-3.1-8b-tp1"]) == 2
    assert "timed in its engine" in capsys.readouterr().err
