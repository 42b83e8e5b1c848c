"""The verdict that opens a comparison: who is better, and from which border on."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.report.compare.comparison import Certainties, Comparison, Difference, States, compare
from kvcache_sim.report.compare.model_ratio import ModelRatios
from kvcache_sim.report.compare.samples import RATE, STATISTICS
from kvcache_sim.report.compare.text import settings_line
from kvcache_sim.report.compare.verdict import verdict
from report.finished_rows import written
from support.examples import examples
from support.request_rows import rows

BY_METRIC = {one.metric: one for one in STATISTICS}
TTFT, MEAN, HITS, OUTPUT = (
    BY_METRIC[name] for name in ("latency.ttft.p99", "latency.ttft.avg", "cache.token_hit_rate", RATE)
)


def compared(*differences, states=("", "", (False, False), True, True), model=(), **changes):
    """Return a comparison of B with A in differences made by hand."""
    settings = changes.pop("settings", {})
    requests = changes.pop("requests", 200)
    return Comparison(
        "A",
        "B",
        differences,
        settings,
        requests,
        "request",
        1,
        False,
        States(*states),
        ModelRatios(dict(model), ""),
        Certainties((), {}),
    )


def difference(statistic=TTFT, change=1.5, low=1.4, high=1.6):
    return Difference(statistic, 100.0, 150.0, change, low, high)


@examples(200)
@given(
    st.sampled_from([TTFT, HITS, OUTPUT]),
    *[st.integers(-2, 2)] * 2,
    st.none() | st.tuples(*[st.integers(-2, 2)] * 2).map(sorted),
)
def test_a_run_is_better_where_no_interval_holds_no_difference(statistic, low, high, model):
    low, high = sorted((low, high))
    none = 0.0 if statistic.is_share else 1.0
    change = none + (low + high) / 20
    own = difference(statistic, change, none + low / 10, none + high / 10)
    bounds = {} if model is None else {statistic.metric: tuple(1 + end / 10 for end in model)}
    certain = not low <= 0 <= high and (model is None or not model[0] <= 0 <= model[1])
    winner = "B" if (low > 0) == statistic.more_is_better else "A"
    assert verdict(compared(own, model=bounds)).better == (winner if certain else None)


@pytest.mark.parametrize("ranks", [True, False])
@pytest.mark.parametrize("same_load", [True, False])
@pytest.mark.parametrize("crowded", ["", "A", "B", "AB"])
@pytest.mark.parametrize("waits_longer", ["A", "B"])
def test_overloaded_runs_are_ranked_by_output_unless_their_loads_differ(
    crowded, same_load, ranks, waits_longer
):
    growing = ("A" in crowded, "B" in crowded)
    said = ["it waits" if grows else "" for grows in growing]
    mean = Difference(MEAN, *((100.0, 150.0) if waits_longer == "B" else (150.0, 100.0)), 1.5, 1.4, 1.6)
    by_output = bool(crowded) and not ranks
    own = compared(difference(), mean, difference(OUTPUT), states=(*said, growing, same_load, not by_output))
    found = verdict(own)
    assert found.difference.statistic is (OUTPUT if by_output else TTFT)
    holding = {"A": "B", "B": "A"}.get(crowded)
    alone = holding if same_load and crowded == waits_longer else None
    assert found.better == ((alone if holding else "B") if by_output else "A")
    assert sum("is saturated: it waits." in line for line in found.sentences) == len(crowded)


def load(columns, rate, sentence="", holds=1):
    state = {"arrived_per_s": rate, "holds_per_s": holds, "sentence": sentence}
    return written(columns, summary={"saturated": bool(sentence), "saturation": state})


@pytest.mark.parametrize(
    ("rates", "same"),
    [
        ((10, 10), True),
        ((1000.0, 1000.9), True),
        ((1000.0, 999.1), True),
        ((1000.0, 1002.0), False),
        ((1000.0, 998.0), False),
        ((None, None), True),
        ((None, 10), False),
        ((10, None), False),
    ],
)
def test_loads_are_alike_within_a_thousandth_of_the_same_requests(rates, same):
    columns = rows(5)
    first, second = (load(columns, rate) for rate in rates)
    assert compare([first], [second]).states == ("", "", (False, False), same, True)
    assert not compare([first], [load(rows(6), rates[1])]).states.same_load


@pytest.mark.parametrize("asked", [True, False])
def test_a_side_is_saturated_if_one_of_its_replications_is(asked):
    columns = rows(5)
    crowded = [load(columns, 10), load(columns, 10, "x"), load(columns, 10, "y")]
    calm = [load(columns, 10)] * 3
    assert compare(crowded, calm, asked).states == ("x", "", (True, False), True, asked)
    assert compare(calm, crowded, asked).states == ("", "x", (False, True), True, asked)
    bursts = [load(columns, 10, "x", holds=9.95)] * 3
    assert compare(calm, bursts, asked).states == ("", "x", (False, False), True, True)
    assert compare(calm, calm, asked).states.rank_latency


def test_the_settings_that_matter_most_are_named_first():
    names = ["channels.pcie.bandwidth", "seed", "trace.path", "cache.policy", "tiers.cpu.capacity"]
    for count, order in ((0, []), (1, names[:1]), (2, names[1::-1]), (5, [*names[:1:-1]])):
        line = settings_line(compared(settings=dict.fromkeys(names[:count], ("a", "b"))))
        assert re.findall(r"(\S+) a → b", line) == order
        assert ("--settings" in line) is (count > 3)
