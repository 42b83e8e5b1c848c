"""The upper bound of the token hit rate: an unbounded cache, answers included, in one number everywhere."""

import json
import re
from dataclasses import replace

import kvcache_sim
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.replay.curve.hits import hit_curve
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts, with_answers
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.report.finished import open_runs
from kvcache_sim.report.upper_bound import hit_rates
from support.examples import examples
from support.product.reports import draw, find_trace, upper_bound_of
from support.product.traces import upper_bound_hit_tokens

INSTANT = {"replica": {"instant": True}, "tiers": {"gpu": {"capacity": "unbounded"}}}
GPU = {"tiers": {"gpu": {"capacity": "500 blocks"}}}
KEY = "upper_bound_token_hit_rate"


def made(rows, block_size=8):
    """Return a trace of rows of (session, prompt tokens, answer tokens, ids), a millisecond apart."""
    columns = {"timestamp": list(range(len(rows)))}
    for name, values in zip(
        ("session_id", "input_length", "output_length", "hash_ids"), zip(*rows, strict=True), strict=True
    ):
        columns[name] = list(values)
    return kvcache_sim.make_trace(columns, block_size=block_size)


def test_a_turn_finds_the_whole_blocks_of_prompt_and_answer():
    # 16 + 9 tokens: 24 have KV, the third block among them; the next prompt of 40 shows it as id 2
    trace = made([("a", 16, 9, [0, 1]), ("a", 40, 1, [0, 1, 2, 3, 4])])
    assert upper_bound_hit_tokens(trace).tolist() == [0, 24]
    assert upper_bound_hit_tokens(trace, cache_output=False).tolist() == [0, 16]
    # an answer of 8 ends before the last token of the block has KV; blocks of 2 tokens end closer
    trace = made([("a", 16, 8, [0, 1]), ("a", 40, 1, [0, 1, 2, 3, 4])])
    assert upper_bound_hit_tokens(trace).tolist() == [0, 16]
    assert upper_bound_hit_tokens(trace, block_size_tokens=2).tolist() == [0, 22]


def test_the_last_token_is_computed_unless_a_whole_prompt_may_hit():
    trace = made([("a", 16, 1, [0, 1]), ("b", 16, 1, [0, 1])])
    assert upper_bound_hit_tokens(trace).tolist() == [0, 8]
    assert upper_bound_hit_tokens(trace, block_size_tokens=4).tolist() == [0, 12]
    assert upper_bound_hit_tokens(trace, skips_prefill=True).tolist() == [0, 16]


def test_a_partial_id_is_found_as_far_as_an_earlier_prompt_filled_it():
    trace = made([("a", 11, 1, [0, 1]), ("b", 14, 1, [0, 1]), ("c", 16, 1, [0, 1])])
    assert upper_bound_hit_tokens(trace, block_size_tokens=2).tolist() == [0, 10, 14]


@pytest.mark.parametrize(
    ("named", "answer", "held"), [(24, 17, 24), (32, 17, 32), (32, 16, 24), (0, 17, 16), (8, 17, 16)]
)
def test_ids_that_cover_the_answer_are_left_as_far_as_it_is_computed(named, answer, held):
    trace = made([("a", 32, answer, [0, 1, 2, 3]), ("b", 40, 1, [0, 1, 2, 3, 4])])
    trace = replace(trace, named_tokens=np.array([named, 0]), input_tokens=np.array([16, 40]))
    assert upper_bound_hit_tokens(trace).tolist() == [0, held]


@st.composite
def traces(draw):
    """Return rows of some sessions: prompts that continue, repeat or share beginnings, partial last ids."""
    block, rows, fresh = 8, [], iter(range(10**6))
    last = {}
    for _ in range(draw(st.integers(2, 12))):
        session = draw(st.sampled_from("abc"))
        ids, tokens = [], 0
        if rows and draw(st.booleans()):
            ids, tokens = last.get(session) or draw(st.sampled_from(list(last.values())))
        kept = draw(st.integers(0, tokens // block))
        whole, tail = draw(st.integers(0, 4)), draw(st.integers(0, block - 1))
        count = max(1, (kept + whole) * block + tail)
        own = [*ids[:kept], *(next(fresh) for _ in range(-(-count // block) - kept))]
        if draw(st.booleans()) and ids and tail:  # the same partial last id as an earlier prompt
            own, count = list(ids), max(1, (len(ids) - 1) * block + draw(st.integers(1, block)))
        rows.append((session, count, draw(st.integers(1, 20)), own))
        last[session] = own, count
    return rows


@examples(60)
@given(traces(), st.sampled_from([8, 4, 2, 1]), st.booleans())
def test_an_unbounded_gpu_finds_exactly_that_much(rows, block, cache_output):
    trace = made(rows)
    cache = {"block_size": block, "cache_output": cache_output}
    run = kvcache_sim.simulate(trace, {**INSTANT, "cache": cache})
    found = upper_bound_hit_tokens(trace, cache_output, block)
    assert found.tolist() == run.requests.column("cached_prefix_length_used").to_pylist()
    assert run.summary["cache"][KEY] == run.summary["cache"]["token_hit_rate"]
    prompts = blocks_of_prompts(ReplayRequest(trace, block, 0))
    curve = hit_curve(with_answers(prompts) if cache_output else prompts, "tail")
    assert curve.hit_tokens.top == found.sum()


def test_card_sentence_curve_and_picture_show_one_number(tmp_path, capsys):
    trace = tmp_path / "t.jsonl"
    assert kvsim(["trace", "generate", "conversational", "--requests", "80", "--out", str(trace)]) == 0
    run = tmp_path / "run"
    small = ["--set", "tiers.gpu.capacity=200 blocks"]
    assert kvsim(["simulate", str(trace), "-o", str(run), "-q", *small]) == 0
    capsys.readouterr()
    most = json.loads((run / "summary.json").read_text())["cache"][KEY]
    assert kvsim(["explain", str(run)]) == 0
    assert f"upper bound of {100 * most:.3g} %" in re.sub(r"\s+", " ", capsys.readouterr().out)
    assert kvsim(["curve", str(trace)]) == 0
    [said] = re.findall(r"upper bound +.*?([0-9.]+) % of tokens", capsys.readouterr().out)
    assert said == f"{100 * most:.3g}"
    assert kvsim(["curve", str(trace), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["upper_bound"]["hit_rate"] == pytest.approx(most, abs=1e-12)
    [opened] = open_runs([run])
    assert find_trace(opened) == ""
    rows = [row for row in draw("hit-curve", [opened]).data if row["line"] == "upper bound"]
    assert {row["share"] for row in rows} == {round(most, 6)}
    # the summary of an older run has none: it is computed over its requests, while the trace is there
    rates = hit_rates(opened)
    del opened.summary["cache"][KEY]
    assert hit_rates(opened) == pytest.approx(rates)
    kept, opened.finished = opened.finished, {name: column[:0] for name, column in opened.finished.items()}
    assert hit_rates(opened) is None
    opened.finished, opened.trace = kept, None
    assert hit_rates(opened) is None
    assert upper_bound_of(opened) is None


def test_the_measured_requests_alone_are_counted():
    rows = [("a", 16, 1, [0, 1]), ("b", 24, 1, [0, 1, 2]), ("c", 24, 1, [3, 4, 5]), ("d", 24, 1, [3, 4, 6])]
    run = kvcache_sim.simulate(made(rows), {"measure": {"warmup": "2 requests"}, "cache": {"block_size": 8}})
    assert run.summary["cache"][KEY] == 16 / 48


def test_a_run_that_admits_in_another_order_does_not_pass_its_bound():
    # in order of arrival the last prompt may hit one block of two; the shortest first, it leaves both
    rows = [("a", 800, 1, list(range(100, 200))), ("b", 24, 1, [0, 1, 2]), ("c", 16, 1, [0, 1])]
    assert upper_bound_hit_tokens(made(rows)).tolist() == [0, 0, 8]
    one_at_a_time = {"max_num_seqs": 1, "queue_order": "shortest-first", "step_time": "linear:base=10ms"}
    run = kvcache_sim.simulate(made(rows), {**GPU, "replica": one_at_a_time, "cache": {"block_size": 8}})
    assert run.requests.column("cached_prefix_length_used").to_pylist() == [0, 16, 0]
    assert run.summary["cache"]["token_hit_rate"] == 16 / 840
    assert run.summary["cache"][KEY] == 24 / 840


def test_a_prompt_beyond_the_context_leaves_nothing_for_others():
    """The run rejects the first prompt, so the second finds no block of it; without a context it finds one."""
    rows = [("a", 32, 1, [0, 1, 2, 3]), ("b", 15, 1, [0, 1])]
    shared = {"tiers": {"gpu": {"capacity": "unbounded"}}, "cache": {"block_size": 8}}
    for length, tokens in ((32, 0), (33, 8)):
        run = kvcache_sim.simulate(made(rows), {**shared, "replica": {"max_model_len": length}})
        assert run.requests.column("cached_prefix_length_used").to_pylist()[1] == tokens
        prompts = 15 if tokens == 0 else 47
        assert run.summary["cache"][KEY] == run.summary["cache"]["token_hit_rate"] == tokens / prompts


@examples(40)
@given(traces(), st.sampled_from([8, 4]), st.integers(9, 120))
def test_the_bound_counts_what_a_run_with_a_context_counts(rows, block, context):
    run = kvcache_sim.simulate(
        made(rows),
        {**INSTANT, "replica": {"instant": True, "max_model_len": context}, "cache": {"block_size": block}},
    )
    assert run.summary["cache"][KEY] == run.summary["cache"]["token_hit_rate"]


def test_without_a_finished_request_there_is_none():
    rows = [("a", 900, 1, list(range(113)))]
    run = kvcache_sim.simulate(
        made(rows), {"tiers": {"gpu": {"capacity": "8 blocks"}}, "cache": {"block_size": 8}}
    )
    assert run.summary["requests"]["finished"] == 0
    assert run.summary["cache"][KEY] is None
