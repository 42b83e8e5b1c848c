"""Every missed token stands under one cause: the list is complete, and the core's rules agree with a model."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.cache.settings import CacheSettings, PrefixViewSettings
from kvcache_sim.metrics.columns import MISS_COLUMNS
from kvcache_sim.metrics.miss_causes import keeps_all_blocks, keeps_no_blocks, summarize_misses
from kvcache_sim.replay.miss_causes import MISS_CAUSES
from kvcache_sim.simulation import simulate
from support.clusters import BLOCK, cluster
from support.examples import examples
from support.miss_causes import timed_miss_tokens
from support.product.machines import reported_by
from support.product.reports import miss_causes, miss_column
from support.traces import random_trace

CAUSES = [cause.name for cause in MISS_CAUSES]


def test_the_core_reports_the_causes_of_the_list():
    assert tuple(cause.name for cause in MISS_CAUSES) == _core.MISS_CAUSES
    assert set(MISS_COLUMNS) == {miss_column(cause) for cause in reported_by("timed")} | {"evicted_idle_ns"}


@st.composite
def timed_runs(draw):
    """Return the arguments of ``timed_miss_tokens``: a few requests over a few ids, chained or not."""
    n = draw(st.integers(1, 12))
    id_tokens = draw(st.sampled_from([4, 8]))
    block_tokens = draw(st.sampled_from([2, 4, 8, 12, 16]))
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
        column(-1, 2),
        prompt,
        column(0, 20),
        cached,
        admitted,
        first_token,
        first_token + column(0, 30),
        np.array([draw(st.sampled_from([0, draw(st.integers(0, n))])) for n in prompt.tolist()], np.int64),
        column(0, 2).astype(np.uint8),
        draw(st.booleans()),
    )


def pair(admitted_ns: int):
    """Return a prompt of two blocks whose first token comes at 5 ns, and the same prompt, admitted then or later."""
    each = np.array([0, admitted_ns]), np.array([5, 20]), np.array([9, 30])
    ids, none = np.array([0, 1] * 2, np.uint32), np.full(2, -1, np.int32)
    before = (
        np.array([0, 2, 4]),
        ids,
        4,
        4,
        none,
        np.ones(2, bool),
        np.zeros(2, np.int64),
        none.astype(np.int64),
    )
    lengths = np.full(2, 8), np.ones(2, np.int64), np.zeros(2, np.int64)
    return (*before, *lengths, *each, np.zeros(2, np.int64), np.zeros(2, np.uint8), True)


@examples(300)
@example(pair(4))
@example(pair(5))
@given(timed_runs())
def test_timed_causes_are_those_of_the_model(run):
    tokens, idle_ns = _core.timed_miss_tokens(*run)
    expected, expected_idle_ns = timed_miss_tokens(*run)
    assert tokens.tolist() == expected.tolist()
    assert idle_ns.tolist() == expected_idle_ns.tolist()
    finished, prompt, cached = run[5], run[8], run[10]
    assert (tokens.sum(axis=1) == np.where(finished, prompt - cached, 0)).all()


def test_columns_that_do_not_fit_together_are_refused():
    one = np.ones(1, np.int64)
    good = [np.array([0, 1]), np.zeros(1, np.uint32), 4, 4, np.full(1, -1, np.int32), np.ones(1, bool)]
    good += [0 * one, -one, one, one, 0 * one, one, one, one, 0 * one, np.zeros(1, np.uint8), True]
    assert _core.timed_miss_tokens(*good)[0].sum() == 1
    bad = {
        0: np.array([0, 2]),
        2: 0,
        3: -1,
        4: np.ones(1, np.int32),
        6: -one,
        7: one << 20,
        8: -one,
        10: 2 * one,
    }
    for index, value in (bad | {14: 2 * one, 13: one[:0]}).items():
        with pytest.raises(ValueError, match="miss causes"):
            _core.timed_miss_tokens(*good[:index], value, *good[index + 1 :])


def causes_of(settings, trace, **more):
    run = simulate(settings, trace)
    columns = miss_causes(run.requests, trace, BLOCK, **more)
    missed = run.requests["input_tokens"] - run.requests["cached_prefix_length_used"]
    missed = np.where(run.requests["status"] == 0, missed, 0)
    by_cause = [columns[f"miss_{cause}_tokens"] for cause in CAUSES]
    assert (sum(by_cause) == missed).all()
    assert min(tokens.min() for tokens in by_cause) >= 0
    every = np.ones(len(columns["evicted_idle_ns"]), bool)
    return summarize_misses(columns, every, ["lru on gpu"])


@pytest.mark.parametrize("tiers", [(160,), (5000,), (90, 60, 400)])
@pytest.mark.parametrize("machines", [1, 2])
def test_causes_sum_to_the_misses(tiers, machines):
    found = causes_of(cluster(tiers, machines), random_trace(3))
    assert (found["evicted"] > 0) == (tiers != (5000,))
    assert (found["elsewhere"] > 0) == (machines == 2)


def test_where_no_block_outlives_its_request_none_is_elsewhere():
    found = causes_of(cluster((5000,), 2), random_trace(3), kept=False, keeps_none=True)
    assert found["elsewhere"] == 0 < found["not_admitted"]


def test_the_summary_is_of_the_measured_requests_and_idle_times_are_in_ms():
    columns = {f"miss_{cause}_tokens": np.array([1, 10 + k, 100]) for k, cause in enumerate(CAUSES)}
    for idle_ns, idle in (
        ([5, 3_000_000, -1], (1, 3.0, 3.0)),
        ([-1, 0, 9_000_000], (2, 4.5, 9.0)),
        ([7, -1, -1], (0, None, None)),
    ):
        columns["evicted_idle_ns"] = np.array(idle_ns)
        found = summarize_misses(columns, np.array([False, True, True]), ["lru on gpu"])
        assert tuple(found.pop("evicted_idle_ms").values()) == idle
        by_cause = {cause: 110 + k for k, cause in enumerate(CAUSES)}
        assert found == {"tokens": sum(by_cause.values()), **by_cause, "evicted_by": ["lru on gpu"]}


@pytest.mark.parametrize(
    ("changes", "keeps", "keeps_none"),
    [
        ({}, True, False),
        ({"enabled": False}, False, True),
        ({"admission": "second-use"}, False, False),
        ({"discard_on_finish": True}, False, True),
        ({"prefix_view": PrefixViewSettings(min_seen=2)}, False, False),
    ],
)
def test_a_cache_keeps_all_blocks_unless_a_setting_leaves_some_out(changes, keeps, keeps_none):
    assert keeps_all_blocks(CacheSettings(**changes)) is keeps
    assert keeps_no_blocks(CacheSettings(**changes)) is keeps_none
