"""The list of miss causes is complete, and the native rules agree with small models."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.metrics.columns import MISS_COLUMNS, miss_column
from kvcache_sim.metrics.miss_causes import miss_causes
from kvcache_sim.replay.miss_causes import MISS_CAUSES, reported_by
from kvcache_sim.report.colours import COLOURS
from kvcache_sim.report.explain.sentences import SENTENCES
from kvcache_sim.simulation import simulate
from support.clusters import BLOCK, cluster
from support.examples import examples
from support.miss_causes import timed_miss_tokens
from support.traces import random_trace

DOCS = Path(__file__).parents[2] / "docs"
SENTENCE_NAMES = {name for group in SENTENCES.values() for name in group}


@pytest.mark.parametrize("cause", MISS_CAUSES, ids=lambda cause: cause.name)
def test_a_cause_is_defined_documented_and_shown(cause):
    words = cause.name.replace("_", " ")
    assert cause.meaning
    assert cause.reported_by
    assert f"\n| {words} |" in (DOCS / "reference" / "miss-causes.md").read_text(), (
        "a row of docs/reference/miss-causes.md"
    )
    if "timed" in cause.reported_by:
        assert cause.meaning in MISS_COLUMNS[miss_column(cause)].meaning
        assert cause.name.replace("_", "-") in SENTENCE_NAMES, "a sentence of kvsim explain"
        assert words in COLOURS, "a colour of its own in pictures"


def test_the_core_reports_the_causes_of_the_list():
    assert tuple(cause.name for cause in MISS_CAUSES) == _core.MISS_CAUSES
    assert set(MISS_COLUMNS) == {miss_column(cause) for cause in reported_by("timed")} | {"evicted_idle_ns"}


@st.composite
def timed_runs(draw):
    """Return the arguments of ``timed_miss_tokens``: a few requests over a few ids, chained or not."""
    n = draw(st.integers(1, 12))
    id_tokens = draw(st.sampled_from([4, 8]))
    block_tokens = draw(st.sampled_from([2, 4, 8, 16]))
    rows = [draw(st.lists(st.integers(0, 5), max_size=5)) for _ in range(n)]

    def column(low: int, high: int) -> np.ndarray:
        return np.array([draw(st.integers(low, high)) for _ in range(n)], np.int64)

    prompt = np.array([max(1, len(row) * id_tokens + draw(st.integers(-3, 6))) for row in rows], np.int64)
    cached = np.array([draw(st.integers(0, tokens)) for tokens in prompt.tolist()], np.int64)
    continuation = np.full(n, -1, np.int32)
    for i in range(n - 1):
        if draw(st.booleans()):
            later = draw(st.integers(i + 1, n - 1))
            rows[later] = rows[i] + rows[later]
            prompt[later] += len(rows[i]) * id_tokens
            prompt[i] = min(prompt[i], len(rows[i]) * id_tokens) or 1
            cached[i] = min(cached[i], prompt[i])
            continuation[i] = later if rows[i] else -1
    admitted = column(0, 60)
    first_token = admitted + column(0, 30)
    return (
        np.cumsum([0, *map(len, rows)]).astype(np.int64),
        np.array([one for row in rows for one in row], np.uint32),
        id_tokens,
        block_tokens,
        continuation,
        np.array([draw(st.integers(0, 9)) > 0 for _ in range(n)]),
        column(0, 2),
        prompt,
        column(0, 20),
        cached,
        admitted,
        first_token,
        first_token + column(0, 30),
        np.array([draw(st.sampled_from([0, draw(st.integers(0, n))])) for n in prompt.tolist()], np.int64),
        column(0, 1) == 1,
        draw(st.booleans()),
    )


@examples(300)
@given(timed_runs())
def test_timed_causes_are_those_of_the_model(run):
    tokens, idle_ns = _core.timed_miss_tokens(*run)
    expected, expected_idle_ns = timed_miss_tokens(*run)
    assert tokens.tolist() == expected.tolist()
    assert idle_ns.tolist() == expected_idle_ns.tolist()
    finished, prompt, cached = run[5], run[7], run[9]
    assert (tokens.sum(axis=1) == np.where(finished, prompt - cached, 0)).all()


@pytest.mark.parametrize("machines", [1, 2])
def test_causes_of_a_run_are_those_of_the_model(machines, monkeypatch):
    trace = random_trace(5)
    run = simulate(cluster((90, 60), machines), trace)
    core = miss_causes(run.requests, trace, BLOCK)
    monkeypatch.setattr(_core, "timed_miss_tokens", timed_miss_tokens)
    model = miss_causes(run.requests, trace, BLOCK)
    assert {name: values.tolist() for name, values in core.items()} == {
        name: values.tolist() for name, values in model.items()
    }


def test_columns_that_do_not_fit_together_are_refused():
    one = np.ones(1, np.int64)
    good = [np.array([0, 1]), np.zeros(1, np.uint32), 4, 4, np.full(1, -1, np.int32), np.ones(1, bool)]
    good += [0 * one, one, one, 0 * one, one, one, one, 0 * one, one > 1, True]
    assert _core.timed_miss_tokens(*good)[0].sum() == 1
    bad = {
        0: np.array([0, 2]),
        2: 0,
        3: -1,
        4: np.ones(1, np.int32),
        6: -one,
        7: -one,
        9: 2 * one,
        13: 2 * one,
        12: one[:0],
    }
    for index, value in bad.items():
        with pytest.raises(ValueError, match="miss causes"):
            _core.timed_miss_tokens(*good[:index], value, *good[index + 1 :])
