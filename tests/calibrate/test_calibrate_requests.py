"""Step times from a log of requests alone: known sets are found again, and terms that a log cannot
separate are named."""

import json
from dataclasses import astuple
from types import SimpleNamespace

import kvcache_sim as kv
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate import request_fit
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.request_fit import _Solver, fit_requests, terms_of
from kvcache_sim.extras.calibrate.request_steps import TimedRequests, measured_sums
from kvcache_sim.model.served_kernels import is_sum_of_kernels
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from scipy.optimize import least_squares
from support.examples import examples

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


def served(folder, step_time, rate, count, lengths=(50, 6000), offset_ms=0):
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
    replica = {"step_time": step_time, "max_num_batched_tokens": BUDGET, "client_offset": f"{offset_ms}ms"}  # fmt: skip
    if is_sum_of_kernels(step_time):  # the set's own steps, so that it can be found again
        replica |= {"sustained_clocks": False, "sampling": "plain"}
    found = kv.simulate(trace, replica=replica, **{"tiers.gpu.capacity": "unbounded"}).finished.requests
    arrival, to_first, to_last = (found[f"{name}_ns"] / 1e9 for name in ("arrival", "first_token", "finish"))
    tokens = (found[name].astype(float) for name in ("input_tokens", "output_tokens"))
    return TimedRequests(arrival, to_first - arrival, to_last - arrival, *tokens, np.zeros(count))


def by_name(fitted):
    return {term.name: term for term in fitted.terms}


def vllm_log(log):
    """Return what ``vllm bench serve --save-detailed`` writes of these requests."""
    gaps = [[(e2e - ttft) / (n - 1)] * int(n - 1) for e2e, ttft, n in zip(log.e2e_s, log.ttft_s, log.output_tokens, strict=True)]  # fmt: skip
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


def test_a_lone_request_is_as_many_steps_as_it_has_tokens():
    """A prompt of 1,000 tokens, then nine steps of one sequence; nothing was met when it was sent."""
    one, zero = np.ones(1), np.zeros(1)
    sums = measured_sums(TimedRequests(zero, 0.1 * one, 0.19 * one, 1000 * one, 10 * one, zero), 512)
    ones = np.ones((len(sums.steps), 1))
    assert sums.sums(ones)[:, 0].tolist() == [9.0, 2.0]
    assert sums.measured_ms == pytest.approx([90.0, 100.0])
    assert sums.sums(sums.steps.prefill_tokens[:, None])[:, 0].tolist() == [0.0, 1000.0]
    assert sums.sums(sums.steps.decode_sequences[:, None])[0, 0] == 9.0


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
    truth = {"KV that a decode reads": (0.05, 0.15), "client and queue before the scheduler": (5.0, 0.35)}  # fmt: skip
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


@pytest.mark.parametrize("name", ["h100-llama-3-8b-tp1", "rtx4090-llama-3.1-8b-tp1"])
def test_packaged_sets_are_found_again_where_the_log_has_steps(tmp_path, name):
    log = served(tmp_path, name, 2, 400)
    model = fit_requests(log, BUDGET).model
    truth = load_step_time(name)
    for batch, tolerance in (
        (StepBatch((), 2, 3000, 1500), 0.03),
        (StepBatch((), 5, 7500, 1500), 0.03),
        (StepBatch(((2000, 0),)), 0.05),
        (StepBatch(((4000, 0),)), 0.05),
    ):
        assert model.step(batch) == pytest.approx(truth.step(batch), rel=tolerance), batch


def test_more_requests_narrow_the_intervals(known_log):
    few = TimedRequests(*(getattr(known_log, name)[:100] for name in known_log.__dataclass_fields__))
    name = "KV that a decode reads"
    wide, narrow = (by_name(fit_requests(log, BUDGET))[name] for log in (few, known_log))
    assert narrow.high - narrow.low < 0.7 * (wide.high - wide.low)


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


LOG = """request id,arrival,input,output,latency,TTFT
0,10000000000,1000,10,190000000,100000000
1,11000000000,1000,10,190000000,100000000
"""


@pytest.mark.parametrize("most", [1, 2])
def test_the_requests_sent_first_are_taken_of_a_long_log(tmp_path, monkeypatch, most):
    from kvcache_sim.extras.calibrate import timed

    monkeypatch.setattr(timed, "MOST_REQUESTS", most)
    path = tmp_path / "log.csv"
    header, *rows = LOG.splitlines()
    path.write_text("\n".join([header + ",cached", rows[1] + ",4", rows[0] + ",3"]))
    log, said = timed.timed_requests(path)
    assert log.cached_tokens.tolist() == [3, 4][:most]
    assert log.sent_s.tolist() == [0, 1][:most]
    of_each = (log.ttft_s, log.e2e_s, log.prompt_tokens, log.output_tokens)
    assert [set(column.tolist()) for column in of_each] == [{0.1}, {0.19}, {1000}, {10}]
    assert said == (("the first 1 of 2 requests",) if most == 1 else ())


def test_logs_that_cannot_be_fitted_are_one_line(tmp_path, capsys):
    meta = {"e2e_latency": 1.0, "completion_tokens": 5, "prompt_tokens": 7}
    events = [{"event": "request.received", "rid": "a"}, {"event": "request.finished", "rid": "a", "out": {"meta_info": meta}}]  # fmt: skip
    sglang, few = tmp_path / "sglang.jsonl", tmp_path / "few.csv"
    sglang.write_text("\n".join(map(json.dumps, events)) + "\n")
    few.write_text(LOG)
    for path, said in ((sglang, "no start time"), (few, "too few requests to fit")):
        assert kvsim(["calibrate", "requests", str(path), "-o", str(tmp_path / "x.toml")]) != 0
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") <= 2
    assert not (tmp_path / "x.toml").exists()


def log_of(decodes, kv, chunks):
    """The steps of a log: decode steps of so many sequences and KV tokens, then chunks of so many tokens."""
    names = ("prefill_tokens", "decode_sequences", "decode_kv_tokens")
    rows = [*((0, n, tokens) for n, tokens in zip(decodes, kv, strict=True)), *((new, 0, 0) for new in chunks)]  # fmt: skip
    return SimpleNamespace(steps=SimpleNamespace(**dict(zip(names, np.array(rows, float).T, strict=True))))


def fit_of(step_ms=0.0, kv=1.0, pairs=2.0, client=3.0):
    def step(batch):
        (new, past), *_ = *batch.prefill_chunks, (0, 0)
        n, kv_tokens, longest = batch.decode_sequences, batch.decode_kv_tokens, batch.decode_max_kv_tokens
        return 1e6 * (step_ms + new + 1e5 * past + 10 * n + kv_tokens / 1e3 + longest / 1e6)

    return SimpleNamespace(step=step, kv_ms_per_thousand=kv, pairs_ms_per_million=pairs), client


SINGLE = ("KV that a decode reads", "a prompt's attention to itself", "client and queue before the scheduler")


@pytest.mark.parametrize(
    ("decodes", "kv", "chunks", "sequences", "each", "new"),
    [
        (range(1, 12), [n * (1230 + n) for n in range(1, 12)], range(100, 1200, 100), (2, 6, 10), 1236, (200, 600, 1000)),
        ([1] * 3 + [4] * 5 + [8] * 3, [100, 0, 0, *[400] * 8], [0.2] * 5, (1, 4, 8), 68, (1,)),
        ([0.2] * 2, [0.3] * 2, [5], (1,), 1, (5,)),
    ],
)  # fmt: skip
def test_terms_are_steps_at_percentiles_of_the_log_and_single_costs(
    decodes, kv, chunks, sequences, each, new
):
    """Their intervals are the middle 90 % of those redrawn: of -5 to 5 around the value, 4.5 on both sides."""
    redrawn = [fit_of(d, 1 + d, 2, 3 - d) for d in range(-5, 6)]
    found = {term.name: term for term in terms_of(fit_of(), redrawn, log_of(decodes, kv, chunks))}
    steps = {f"decode step, {n} sequences of {each:,} tokens": 10 * n + n * each / 1e3 + each / 1e6 for n in sequences}  # fmt: skip
    steps |= {f"step of a chunk of {tokens:,} tokens": float(tokens) for tokens in new}
    assert list(found) == [*steps, *SINGLE]
    units = ["ms per 1,000 tokens", "ms per million token pairs", "ms"]
    assert [term.unit for term in found.values()] == ["ms"] * len(steps) + units
    for (name, term), value in zip(found.items(), [*steps.values(), 1, 2, 3], strict=True):
        wide = 0 if name == SINGLE[1] else 4.5
        assert (term.value, term.low, term.high) == pytest.approx((value, value - wide, value + wide)), name


@examples(40)
@given(st.lists(st.tuples(*[st.integers(-9, 9)] * 3), min_size=3, max_size=6))
def test_a_term_is_indistinguishable_from_the_one_that_falls_most_as_it_rises(moves):
    """By Pearson's correlation below -0.5; an interval of half the value or less determines the term."""
    singles = np.array(moves, float)
    terms = terms_of(fit_of(), [fit_of(0, *one) for one in moves], log_of([1], [1], [1]))[-3:]
    low, high = np.percentile(singles, [5, 95], axis=0)
    for k, (term, value) in enumerate(zip(terms, (1, 2, 3), strict=True)):
        if high[k] - low[k] <= value / 2:
            assert term.unclear == ""
            continue
        with np.errstate(invalid="ignore"):
            falls = np.nan_to_num(np.corrcoef(singles.T)[k]).tolist()
        if abs(min(falls) + 0.5) < 1e-9 or sorted(falls)[1] - min(falls) < 1e-9:
            continue
        expected = f"indistinguishable from: {SINGLE[int(np.argmin(falls))]}"
        assert term.unclear == (expected if min(falls) < -0.5 else "poorly determined by the log")


def test_the_solver_minimises_what_scipy_does():
    """Soft L1 of relative errors, coefficients of at least 0; outliers and terms of no use are among them."""
    draw = np.random.default_rng(5)
    rows = draw.uniform(0.1, 1.0, (80, 3))
    measured = (rows @ [2.0, 0.0, 5.0]) * draw.normal(1, 0.03, 80) * np.where(np.arange(80) % 8, 1, 3)
    relative = np.insert(rows / measured[:, None], 1, 0.0, axis=1)
    found = _Solver(relative).solve(np.ones(80))
    expected = least_squares(
        lambda x: relative @ x - 1, np.ones(4), bounds=(0, np.inf), loss="soft_l1", f_scale=0.05, x_scale=[1, 1, 1, 1]
    ).x  # fmt: skip
    assert found[1] == 0
    assert found[[0, 2, 3]] == pytest.approx(expected[[0, 2, 3]], rel=2e-3, abs=2e-3)
    assert np.abs(rows @ found[[0, 2, 3]] / measured - 1)[np.arange(80) % 8 > 0].mean() < 0.04


def test_weights_are_of_rows():
    """A row of no weight counts for nothing, one of weight √2 as if it were there twice."""
    draw = np.random.default_rng(6)
    relative = draw.uniform(0.4, 0.6, (20, 2))
    relative[3] *= 30
    counts = np.array([0 if row == 3 else 1 + row % 2 for row in range(20)])
    again = np.repeat(relative, counts, axis=0)
    found = _Solver(relative).solve(np.sqrt(counts))
    assert found == pytest.approx(_Solver(again).solve(np.ones(len(again))), rel=1e-6)


@pytest.mark.parametrize(
    ("seen", "knots"),
    [
        (range(1, 201), (4.98, 32, 128, 200)),  # four steps up to 8 are too few
        (range(1, 154), (4.04, 32, 128)),  # 153 is not 1.2 times 128
        (range(1, 155), (4.06, 32, 128, 154)),
        ([1] * 50 + [8] * 8, (1, 8)),
        ([1] * 50 + [8] * 7, (1,)),
        ([1] * 50 + [40] * 7 + [100] * 3, (1, 100)),
        ([0.2] * 9, (1,)),
    ],
)
def test_knots_have_eight_steps_below_and_a_distance(seen, knots):
    found = request_fit._knots((8.0, 32.0, 128.0), np.array(seen, float))
    assert found == pytest.approx(knots)


def test_errors_of_held_out_sums_by_hand(monkeypatch):
    """Four sums, of which the last is fitted; a client of 5 ms counts up to the first token alone."""
    monkeypatch.setattr(request_fit, "predict_ms", lambda model, steps: np.array([90.0, 115.0, 60.0, 1.0]))
    sums = SimpleNamespace(
        sums=lambda columns: columns, steps=None, to_first=np.array([False, True, False, True]),
        measured_ms=np.array([100.0, 100.0, 50.0, 100.0]),
    )  # fmt: skip
    decode, prefill = request_fit._errors(None, 5.0, sums, np.array([True, True, True, False]))
    assert (decode.phase, decode.rows, prefill.phase, prefill.rows) == ("decode", 2, "prefill", 1)
    assert astuple(decode)[2:] == pytest.approx((15.0, 19.5, 5.0))
    assert astuple(prefill)[2:] == pytest.approx((20.0, 20.0, 20.0))
    [alone] = request_fit._errors(None, 5.0, sums, np.array([True, False, False, False]))
    assert alone.phase == "decode"
    form = request_fit.Form((1.0, 2.0, 3.0), (), decode_knots=(1.0, 2.0))
    names = [*["client"], *["base"] * len(form.base_knots), *request_fit.LINEAR]
    assert {names[at] for at in request_fit._left_out(form)} == {*request_fit.LINEAR} - {"kv", "pairs"}
