"""The figures of a comparison: of each request, of the requests that both runs finished, and their intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.report.compare.comparison import compare, differing_settings, mean_interval
from kvcache_sim.report.compare.model_ratio import model_ratios
from kvcache_sim.report.compare.samples import RATE, common_requests, samples_of, statistics_of
from report.finished_rows import written
from support.examples import examples
from support.request_rows import rows

#: Nanoseconds of a millisecond.
MS = 10**6


def by_metric(comparison):
    return {one.statistic.metric: one for one in comparison.differences}


@st.composite
def finished(draw):
    """Return columns of a few finished requests."""
    count = draw(st.integers(1, 6))
    bounds = {
        "arrival_ns": (0, 5),
        "first_token_ns": (0, 9),
        "finish_ns": (0, 50),
        "queue_ns": (0, 9),
        "input_tokens": (1, 9),
        "cached_prefix_length_used": (0, 9),
        "output_tokens": (1, 4),
        "within_slo": (-1, 1),
    }
    drawn = {
        name: np.array(draw(st.lists(st.integers(*bound), min_size=count, max_size=count)), np.int64)
        for name, bound in bounds.items()
    }
    drawn["first_token_ns"] += drawn["arrival_ns"]
    drawn["finish_ns"] += drawn["first_token_ns"]
    drawn["request"] = np.array(draw(st.permutations(range(count))))
    if not draw(st.booleans()):
        del drawn["within_slo"]
    return drawn | {"status": np.zeros(count, np.int64)}


def figures_of(mine):
    """Return the figures of requests, each a dict, in plain arithmetic."""
    waits = [(one["first_token_ns"] - one["arrival_ns"]) / MS for one in mine]
    paces = [
        round((one["finish_ns"] - one["first_token_ns"]) / (one["output_tokens"] - 1)) / MS
        for one in mine
        if one["output_tokens"] > 1
    ]
    span_s = (max(one["finish_ns"] for one in mine) - min(one["arrival_ns"] for one in mine)) / 1e9
    judged = [one["within_slo"] for one in mine if one.get("within_slo", -1) >= 0]
    found = {
        "latency.ttft.p99": np.percentile(waits, 99),
        "latency.ttft.p50": np.percentile(waits, 50),
        "latency.ttft.avg": np.mean(waits),
        "latency.tpot.avg": np.mean(paces) if paces else 0.0,
        "latency.e2e.avg": np.mean([(one["finish_ns"] - one["arrival_ns"]) / MS for one in mine]),
        "latency.queue.avg": np.mean([one["queue_ns"] / MS for one in mine]),
        RATE: sum(one["output_tokens"] for one in mine) / max(span_s, 1e-9),
        "cache.token_hit_rate": sum(one["cached_prefix_length_used"] for one in mine)
        / sum(one["input_tokens"] for one in mine),
    }
    attained = {"slo.attainment": judged.count(1) / max(len(judged), 1)} if "within_slo" in mine[0] else {}
    return attained | found, span_s


@examples(60)
@given(finished(), st.sets(st.integers(0, 6)))
def test_the_figures_of_a_run_are_those_of_its_requests_one_by_one(columns, chosen):
    each = [{name: int(own[k]) for name, own in columns.items()} for k in range(len(columns["request"]))]
    for only in (None, chosen):
        mine = [one for one in each if only is None or one["request"] in only]
        mine.sort(key=lambda one: (one["arrival_ns"], one["request"]))
        found = samples_of(written(columns), None if only is None else np.array(sorted(only), int))
        assert len(found) == len(mine)
        if not mine:
            continue
        expected, span_s = figures_of(mine)
        assert {one.metric: one.value(found) for one in statistics_of(found)} == pytest.approx(expected)
        assert statistics_of(found, found)[0].metric == next(iter(expected))
        assert found.columns["gap_s"].sum() == pytest.approx(span_s)
        assert found.columns["input"].tolist() == [one["input_tokens"] for one in mine]


@pytest.mark.parametrize(
    ("change", "common"),
    [
        ({}, [1, 3]),
        ({"request": [0, 1, 2, 4]}, None),
        ({"input_tokens": [1, 2, 3, 5]}, None),
        ({"output_tokens": [1, 1, 1, 2]}, None),
        ({"status": [0, 0, 0, 0]}, [1, 2, 3]),
        ({"status": [0, 1, 0, 0]}, [2, 3]),
    ],
)
def test_runs_are_paired_by_the_requests_that_finished_in_both(change, common):
    own = {"input_tokens": [1, 2, 3, 4], "output_tokens": [1] * 4}
    first = written(rows(4, **own, status=[1, 0, 0, 0]))
    second = written(rows(4, **{**own, "status": [0, 0, 1, 0], **change}))
    found = common_requests(first, second)
    assert (found if found is None else found.tolist()) == common


def one_request(ttft_ms, cached):
    return written(
        rows(1, first_token_ns=[ttft_ms * MS], finish_ns=[20 * MS], input_tokens=[10], output_tokens=[3])
        | {"cached_prefix_length_used": np.array([cached])}
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_replications_are_paired_by_their_number_and_averaged(count):
    """Of times the mean of the ratios, none from zero on; of shares the mean of the differences."""
    pairs = [((2, 1), (3, 4)), ((4, 2), (10, 2)), ((0, 3), (1, 9))][:count]
    sides = [[one_request(*pair[side]) for pair in pairs] for side in (0, 1)]
    comparison = compare(*sides)
    assert (comparison.paired_by, comparison.replications) == (
        "request" if count == 1 else "replication",
        count,
    )
    found = by_metric(comparison)
    ttft, hits = found["latency.ttft.avg"], found["cache.token_hit_rate"]
    expected = [(2, 3, 1.5), (3, 6.5, 2), (2, 14 / 3, None)][count - 1]
    assert (ttft.baseline, ttft.value, ttft.change) == expected
    shares = [(0.1, 0.4, 0.3), (0.15, 0.3, 0.15), (0.2, 0.5, 0.3)][count - 1]
    assert (hits.baseline, hits.value, hits.change) == pytest.approx(shares)


def test_the_interval_of_a_mean_is_that_of_its_replications():
    """Of two values, the mean of two draws is the lesser, the middle or the greater: a quarter, a half, a quarter."""
    assert mean_interval([3.0, 5.0]) == (3.0, 5.0)
    assert mean_interval([4.0]) == (4.0, 4.0)
    low, high = mean_interval([0.0] * 50 + [1.0] * 50)
    assert (low, high) == (pytest.approx(0.402, abs=0.02), pytest.approx(0.598, abs=0.02))


def test_a_channel_that_one_side_lacks_is_one_row():
    link = {"bandwidth": "5GB/s", "latency": "10us", "scope": "machine"}
    without, with_link = {"channels": {}}, {"channels": {"disk": link}}
    assert differing_settings([without, with_link]) == {"channels.disk.bandwidth": (None, "5GB/s")}
    slower = {"channels": {"disk": link | {"latency": "20us"}}}
    assert differing_settings([slower, with_link]) == {"channels.disk.latency": ("20us", "10us")}


def ended(p99, *ends, source="roofline"):
    """Return a run of a TTFT p99 with its value at the slow and the fast bound of the model."""
    bounds = {"ttft_p99": dict(zip(("slow", "fast"), ends, strict=True))} if ends else None
    figures = {"latency": {"ttft": {"p99": p99}}, "certainty": bounds}
    return written(rows(1), summary=figures | {"step_times": source and {"source": source}})


@pytest.mark.parametrize(
    ("first", "second", "interval"),
    [
        (ended(10, 20, 5), ended(16, 30, 10), (1.5, 2.0)),
        (ended(10, 20, 5), ended(16, 30, 10, source="measured"), (0.5, 6.0)),
        (ended(10, 20, 5), ended(16, 0, 10), (0.0, 2.0)),
        (ended(10, 20, 5), ended(16, None, 10), None),
        (ended(10, 20, None), ended(16, 1, 10), None),
        (ended(10, 0, 5), ended(16, 1, 10), None),
        (ended(10, source=None), ended(16, source=None), None),
        (ended(10), ended(16, 1, 1), None),
    ],
)
def test_the_ratio_of_two_runs_is_taken_at_the_same_bound_of_a_shared_error_else_at_opposite_ones(
    first, second, interval
):
    found = model_ratios(first, second)
    assert found.intervals == ({} if interval is None else {"latency.ttft.p99": interval})
    assert (
        bool(found.reason)
        is (first.summary["step_times"] != second.summary["step_times"] or not first.summary["certainty"])
        or first.summary["step_times"] is None
    )
