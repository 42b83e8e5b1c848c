"""``replica.max_model_len``: prompts beyond it are rejected or lose history, answers end at it; cases by hand."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.metrics.optional_groups import summarize_context_window
from kvcache_sim.report.finished import number_column
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.context_window import slide, with_answers_in_context
from kvcache_sim.workload.sessions import continues_prompt
from support.examples import examples
from support.product.traces import previous_turns
from support.small_traces import trace_of

#: A session of five turns over blocks of 16 tokens; each prompt is the last one, its answer of 16, and 16
#: new.
TURNS = [(32 + 32 * turn, list(range(2 + 2 * turn))) for turn in range(5)]


def window_figures(max_model_len, shortened, dropped_tokens, rejected, answers_ended):
    """Return what a summary says of the context window."""
    return {
        "max_model_len": max_model_len,
        "shortened": shortened,
        "dropped_tokens": dropped_tokens,
        "rejected": rejected,
        "answers_ended": answers_ended,
    }


@pytest.fixture
def path(tmp_path):
    rows = [
        {
            "timestamp": 1000 * k,
            "input_length": tokens,
            "output_length": 16,
            "hash_ids": ids,
            "session_id": "s",
        }
        for k, (tokens, ids) in enumerate(TURNS)
    ]
    rows.append({"timestamp": 6000, "input_length": 160, "output_length": 16, "hash_ids": [*range(50, 60)]})
    file = tmp_path / "turns.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def scenario(path, *overrides):
    text = f"trace: {{path: {path}, block_size: 16}}\ncache: {{block_size: 16}}\n"
    return scenario_from_text(text, "s.yaml", path.parent, overrides)


def ran(path, *overrides, rows=None, engine="native"):
    if rows is not None:
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:rows]))
    loaded = scenario(path, "tiers.gpu.capacity=unbounded", *overrides)
    return execute(loaded, read_requests(loaded), RunOptions(engine=engine))


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
@pytest.mark.parametrize("engine", ["native", "spec"])
def test_a_session_keeps_the_newest_history_that_its_capacity_holds(path, accounting, engine):
    done = ran(path, "session_view.max_tokens=112", f"cache.accounting={accounting}", engine=engine)
    # the last two turns, of 128 + 16 and 160 + 16 tokens, lose 32 and 64; the request without one stays whole
    inputs = number_column(done.run.requests["input_tokens"]).tolist()
    assert inputs == [32, 64, 96, 96, 96, 160]
    assert done.summary["requests"]["finished"] == 6
    cached = number_column(done.run.requests["cached_prefix_length_used"]).tolist()
    whole = ran(path, f"cache.accounting={accounting}", engine=engine)
    assert cached[:3] == number_column(whole.run.requests["cached_prefix_length_used"]).tolist()[:3]
    assert cached[3] <= 80, "at most the history that is left"
    if accounting == "detailed":
        assert cached[3:5] == [0, 0], "blocks are named by all before them"


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_prompts_that_leave_no_token_for_an_answer_are_rejected(path, accounting):
    # turn 2 has 96 + 16 = 112 tokens: the last that fits
    done = ran(path, "replica.max_model_len=112", f"cache.accounting={accounting}")
    assert done.run.requests["status"].tolist() == [0, 0, 0, 1, 1, 1]
    assert done.summary["requests"]["rejected"] == 3
    assert done.summary["requests"]["rejected_beyond_context"] == 3
    assert done.summary["context_window"] == window_figures(112, 0, 0, 3, 1)


@pytest.mark.parametrize("engine", ["native", "spec"])
@pytest.mark.parametrize(("length", "answer"), [(97, 1), (96, None)])
def test_an_answer_ends_at_the_context_and_a_prompt_that_fills_it_is_rejected(path, engine, length, answer):
    done = ran(path, f"replica.max_model_len={length}", engine=engine)
    rows = done.run.requests
    assert rows["status"].tolist() == [0, 0, int(answer is None), 1, 1, 1]
    assert rows["output_tokens"].tolist()[:3] == [16, 16, answer or 16], "what is rejected keeps its answer"
    ended = done.summary["context_window"]["answers_ended"]
    assert ended == int(answer is not None)
    # what is rejected is looked up nowhere, waits for nothing, and counts in no latency
    alone = ran(path, f"replica.max_model_len={length}", rows=3 - (answer is None), engine=engine)
    for group in ("latency", "tokens", "cache", "prefix_cache"):
        assert done.summary[group] == alone.summary[group], group
    assert done.summary["requests"]["rejected_beyond_context"] == 3 + (answer is None)


def test_a_rejected_prompt_breaks_no_objective(path):
    done = ran(path, "replica.max_model_len=97", "slo.ttft=10s")
    assert done.summary["slo"]["judged"] == 3
    assert done.summary["slo"]["attained"] == 3


@pytest.mark.parametrize("accounting", ["detailed", "simplified"])
def test_the_oldest_history_goes_and_no_block_of_the_rest_is_the_same(path, accounting):
    done = ran(
        path, "replica.max_model_len=112", "replica.on_overflow=slide", f"cache.accounting={accounting}"
    )
    trace, rows = done.trace, done.run.requests
    # Turns 3 and 4 have 144 and 176 tokens with their answers: 32 and 64 go. Request 5 has no history.
    assert trace.dropped_tokens.tolist() == [0, 0, 0, 32, 64, 0]
    assert trace.input_tokens.tolist() == [32, 64, 96, 96, 96, 160]
    assert rows["status"].tolist() == [0, 0, 0, 0, 0, 1]
    own = [set(trace.block_ids[a:b].tolist()) for a, b in pairwise(trace.id_offsets)]
    assert [len(ids) for ids in own] == [2, 4, 6, 6, 6, 10]
    assert not own[3] & (own[2] | own[4])
    # Turns 1 and 2 hit prompt and answer of the one before, but for the last generated token's block. Of the
    # shortened ones no block is known; where blocks are not, the kept 80 tokens of history count as cached.
    hits = {"detailed": [0, 32, 64, 0, 0], "simplified": [0, 48, 80, 80, 80]}
    assert rows["cached_prefix_length_used"][:5].tolist() == hits[accounting]
    assert done.summary["context_window"] == window_figures(112, 2, 96, 1, 3)


@given(
    window=st.integers(20, 200),
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 20)), min_size=1, max_size=8),
    size=st.sampled_from([1, 4, 16]),
)
def test_what_is_kept_is_the_end_of_the_prompt_in_blocks_of_their_own(window, lengths, size):
    prompts, ids, total = [], [], 0
    for new, output in lengths:
        total += new
        prompts.append(total)
        ids.append([f"b{k}" if (k + 1) * size <= total else f"p{total}" for k in range(-(-total // size))])
        total += output
    outputs = [output for _, output in lengths]
    whole = trace_of(ids, size, prompts, list(range(len(prompts))), outputs)
    whole = in_one_session(whole)
    held = slide(whole, window)
    lost = held.dropped_tokens if len(held.dropped_tokens) else np.zeros(len(held), np.int64)
    over = whole.input_tokens + whole.output_tokens - window
    history = [0, *(p + o for p, o in zip(prompts, outputs, strict=True))][: len(prompts)]
    extrapolates = continues_prompt(whole, previous_turns(whole))
    for row in range(len(held)):
        may_lose = history[row] if extrapolates[row] else 0
        expected = over[row] if 0 < over[row] <= min(may_lose, prompts[row] - 1) else 0
        assert lost[row] == expected
        assert held.input_tokens[row] == prompts[row] - expected
        assert held.id_offsets[row + 1] - held.id_offsets[row] == -(-held.input_tokens[row] // size)
    seen = {}
    for row in range(len(held)):
        for k, dense in enumerate(held.block_ids[held.id_offsets[row] : held.id_offsets[row + 1]].tolist()):
            assert seen.setdefault(dense, (int(lost[row]), k)) == (int(lost[row]), k), (
                "one prefix, one position"
            )
    assert sorted(set(held.block_ids.tolist())) == list(range(held.distinct_ids))


def in_one_session(trace):
    n = len(trace)
    return replace(trace, session=np.zeros(n, np.int32), turn=np.arange(n, dtype=np.int32))


def test_a_prompt_that_is_all_history_keeps_a_token_as_new():
    trace = trace_of([range(8)], 4, [32], output_tokens=[1])
    for excess, dropped in ((31, [31]), (32, [])):
        slid = slide(replace(trace, history_tokens=np.array([32])), 33 - excess)
        assert slid.dropped_tokens.tolist() == dropped


def test_what_was_dropped_adds_up():
    trace = replace(trace_of([[0, 1, 2, 3], [4]], 4), history_tokens=np.array([12, -1]))
    once = slide(trace, 14)
    assert once.dropped_tokens.tolist() == [3, 0]
    twice = slide(once, 10)
    assert (twice.dropped_tokens.tolist(), twice.history_tokens.tolist()) == ([7, 0], [5, -1])
    assert twice.input_tokens.tolist() == [9, 4]


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 14)), min_size=1, max_size=8)
)
def test_an_answer_ends_where_the_context_does_and_a_prompt_that_fills_it_keeps_it(rows):
    prompts, answers, contexts = (np.array(own) for own in zip(*rows, strict=True))
    trace = trace_of([["a"]] * len(rows), 16, prompts.tolist(), None, answers.tolist())
    expected = [min(o, c - p) if p < c else o for p, o, c in rows]
    found = with_answers_in_context(trace, contexts)
    assert found.output_tokens.tolist() == expected
    assert (found is trace) == (expected == answers.tolist())
    assert summarize_context_window(
        3, 4, replace(found, dropped_tokens=np.array([0, 2, 5])), 9
    ) == window_figures(9, 2, 7, 3, 4)
