"""The part of a run that is measured: the rule, its windows and its marks, against each request by itself."""

import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.channel_use import ChannelUse, later_use, summarize_channels
from kvcache_sim.metrics.measure_settings import Measure
from kvcache_sim.metrics.measurement import MeasuredRequests
from kvcache_sim.metrics.parts import Parts
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.metrics.tier_use import TierUse, later_tier_use
from report.made_run import made_run
from support.examples import examples
from support.product.reports import Edge, Windows, steady_from
from support.product.spec import Demand
from support.small_traces import trace_of


def rows_of(numbers, seed=0):
    draw = np.random.default_rng(seed)
    n = len(numbers)
    return {
        "request": np.array(numbers, np.int32),
        "finish_ns": np.where(draw.random(n) < 0.9, draw.integers(1, 10**12, n), -1),
        "arrival_ns": draw.integers(0, 10**12, n),
        "input_tokens": draw.integers(1, 10**6, n),
        "cached_prefix_length_used": draw.integers(0, 10**6, n),
    }


@examples(40)
@given(st.integers(1, 900), st.integers(0, 99), st.lists(st.integers(0, 900), max_size=4))
def test_windows_hold_the_sums_whatever_parts_come_in_whatever_order(count, seed, cuts):
    numbers = np.random.default_rng(seed).permutation(count) if seed % 2 else np.arange(count)
    rows, windows = rows_of(numbers, seed), Windows()
    bounds = sorted({0, count, *(cut % count for cut in cuts)})
    for a, b in pairwise(bounds):
        windows.add({name: own[a:b] for name, own in rows.items()})
    done = rows["finish_ns"] >= 0
    assert windows.requests == done.sum()
    assert len(windows.sums) <= 128
    assert windows.size == 1 or windows.size * 64 <= count
    for window, (n, tokens, cached) in enumerate(windows.sums.tolist()):
        own = done & (rows["request"] // windows.size == window)
        assert n == own.sum()
        assert tokens == rows["input_tokens"][own].sum()
        assert cached == rows["cached_prefix_length_used"][own].sum()
        if n:
            assert windows.first_arrival_ns[window] == rows["arrival_ns"][own].min()
    shares = [cached / max(tokens, 1) for _, tokens, cached in windows.sums.tolist()]
    assert windows.hit_rates().tolist() == shares[:-1], "the last window may not be full"


@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 255, 256, 257, 258, 511, 512, 513, 1025])
def test_windows_merge_when_their_number_would_pass_128_and_not_before(count):
    """The size is the smallest power of two that leaves at most 128 windows, the last one maybe half empty."""
    windows = Windows()
    windows.add({**rows_of(range(count)), "finish_ns": np.ones(count, np.int64)})
    size = 2 ** max(0, math.ceil(math.log2(count / 128)))
    assert (windows.size, len(windows.sums), windows.requests) == (size, -(-count // size), count)
    assert windows.sums[-1, 0] == count - (len(windows.sums) - 1) * size


def test_a_window_at_a_time_is_the_first_whose_requests_come_then_or_later():
    windows = Windows()
    windows.add({**rows_of(range(5)), "finish_ns": np.ones(5, np.int64), "arrival_ns": np.arange(5) * 10})
    assert [windows.window_at(at) for at in (0, 1, 10, 11, 40, 41)] == [0, 1, 1, 2, 4, 5]


EDGES = st.builds(Edge, time_ns=st.integers(0, 9)) | st.builds(Edge, requests=st.integers(0, 9))
EDGES |= st.builds(Edge, share=st.sampled_from([0.1, 0.25, 0.5]))


@examples(150)
@given(st.lists(st.integers(0, 12), min_size=3, max_size=12).map(sorted), EDGES, EDGES, st.integers(1, 14))
def test_what_is_measured_is_decided_request_by_request(arrivals, warmup, cooldown, duration):
    trace, n = trace_of([[k] for k in range(len(arrivals))], arrival_ns=arrivals), len(arrivals)

    def left_out(edge, rank, since):
        if edge.time_ns is not None:
            return since < edge.time_ns
        return rank < (edge.requests if edge.share is None else math.floor(n * edge.share))

    expected = [
        not left_out(warmup, k, at - arrivals[0])
        and not left_out(cooldown, n - 1 - k, arrivals[-1] - at)
        and at < arrivals[0] + duration
        for k, at in enumerate(arrivals)
    ]
    if any(k for k in expected):
        own = MeasuredRequests(4, Measure(warmup, cooldown, duration), trace)
        rows = {"request": np.arange(n), "arrival_ns": np.array(arrivals)}
        assert own.is_measured(rows).tolist() == expected
        assert own.arrivals().at_ns.tolist() == [
            at for at, kept in zip(arrivals, expected, strict=True) if kept
        ]


def test_the_use_of_a_tier_in_a_part_is_the_difference():
    first, last, whole = (TierUse("cpu", 9, n, 2 * n, 3 * n, 4 * n, True) for n in (10, 25, 40))
    assert later_tier_use(last, first, whole) == TierUse("cpu", 9, 15, 30, 45, 100, True, whole)


@examples(60)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_the_cut_is_the_least_marginal_standard_error(values):
    cut = steady_from(np.array(values))
    n = len(values)
    errors = []
    for d in range(n - min(5, n // 4)):
        rest = values[d:]
        mean = sum(rest) / len(rest)
        errors.append(sum((x - mean) ** 2 for x in rest) / len(rest) ** 2)
    if cut is None:
        assert min(errors[: n // 2 + 1]) >= min(errors) - 1e-12
    else:
        assert cut <= n // 2
        assert errors[cut] <= min(errors) + 1e-12


@pytest.mark.parametrize("transient", [0, 7, 20, 45])
def test_a_planted_transient_is_found(transient):
    noise = np.random.default_rng(1).normal(0, 0.01, 100)
    values = np.where(np.arange(100) < transient, 0.1, 0.6) + noise
    assert transient <= steady_from(values) <= 50
    assert steady_from(np.linspace(0, 1, 100)) is None
    assert steady_from(np.where(np.arange(100) < 70, 0.1, 0.6)) is None


@examples(30)
@given(
    st.lists(st.tuples(st.integers(0, 4 * 10**9), st.integers(1, 10**6)), max_size=20),
    st.integers(0, 4 * 10**9),
    st.integers(0, 4 * 10**9),
)
def test_rates_offered_in_a_part_are_those_of_its_own_jobs(jobs, one, other):
    jobs, (begin, end) = sorted(jobs), sorted((one, other))

    def used(until):
        demand = Demand()
        for at, size in jobs:
            if at <= until:
                demand.ask(size, at)
        sizes = [size for at, size in jobs if at <= until]
        offered = np.array(demand.offered, np.int64)
        return ChannelUse("c", 1, sum(sizes), len(sizes), 0, 0, np.array(sizes, np.int64), offered)

    part, seconds = later_use(used(end), used(begin)), {}
    for at, size in jobs:
        if begin < at <= end:
            seconds[at // 10**9] = seconds.get(at // 10**9, 0) + size
    assert part.offered.tolist() == [seconds[second] for second in sorted(seconds)]
    assert part.needed.tolist() == [size for at, size in jobs if begin < at <= end]
    assert part.jobs == len(part.needed)


@pytest.mark.parametrize(("counted_ns", "share"), [(40, 0.5), (20, 1.0), (19, 1.0), (0, None)])
def test_a_channel_is_busy_for_the_whole_of_a_time_at_most(counted_ns, share):
    """A copy booked at the end of a part ends behind it."""
    none = np.zeros(0, np.int64)
    use = ChannelUse("c", 1, 9, 2, 20, 0, none, none)
    assert summarize_channels([use], counted_ns)["c"]["busy_share"] == share


NO_SERIES = Parts(("time_ns", "name", "value"), lambda: iter(()))


@st.composite
def filling_tiers(draw):
    """Return samples of two machines and three tiers, one unbounded, in parts; and when the bounded ones are full."""
    words = *(f"{tier}.{what}" for tier in ("gpu", "cpu", "disk") for what in ("free", "cached")), "x.free"
    samples, free = [], defaultdict(lambda: defaultdict(float))
    for at_ns in range(0, 100 * draw(st.integers(1, 6)), 100):
        for _, (code, word) in product(range(2), enumerate(words)):
            tier, what = word.split(".")
            value = float(draw(st.integers(0, 100))) + (2.0**51 if tier == "disk" else 0)
            samples.append((at_ns, code, value))
            if what == "free" and tier in ("gpu", "cpu"):
                free[tier][at_ns] += value
    parts, cut = [], 2 * len(words) * draw(st.integers(1, 3))  # a time is whole in its part
    for start in range(0, len(samples), cut):
        time_ns, code, value = (np.array(own) for own in zip(*samples[start : start + cut], strict=True))
        parts.append({"time_ns": time_ns, "name": CodedText(code, words), "value": value})
    fulls = []
    for total in free.values():
        most, least = max(total.values()), min(total.values())
        fulls.append(min(at for at, blocks in total.items() if most - blocks >= 0.95 * (most - least)))
    return Parts(("time_ns", "name", "value"), lambda: iter(parts)), max(fulls)


@examples(100)
@given(st.sampled_from([39, 40, 41, 60]), st.integers(0, 40), filling_tiers())
def test_a_run_has_settled_once_its_rate_is_steady_and_its_tiers_full_in_its_first_half(count, steady, tiers):
    """One request every 10 ns, of which those behind the first ``steady`` hit: a window is one request."""
    series, full_ns = tiers
    hits = [5 * (k >= min(steady, count - 7)) for k in range(count)]
    arrivals = [10 * k for k in range(count)]
    columns = {"arrival_ns": arrivals, "first_token_ns": arrivals, "finish_ns": arrivals}
    run = made_run(count, series, **columns, input_tokens=[10] * count, cached_prefix_length_used=hits)
    trace = trace_of([[k] for k in range(count)], arrival_ns=arrivals)
    own = MeasuredRequests(4, Measure(Edge(auto=True)), trace)
    own.add(run.requests)
    _, totals, said, _ = own.chosen(run)
    steady = hits.index(5)
    window = None if steady > (count - 1) // 2 else max(steady, sum(at < full_ns for at in arrivals))
    settled = 0 if count < 40 else window if window is not None and window <= count // 2 else None
    starts = [count * part // 16 for part in range(9)]
    begin = starts[-1] if settled is None else next((k for k in starts if k >= settled), starts[-1])
    assert (said["settled"], said["from_request"]) == (settled is not None, begin)
    assert totals.arrived == count - begin


@pytest.mark.parametrize(
    ("count", "cached", "measure", "says"),
    [
        (1000, lambda k: 50 * (k >= 100), Measure(), "the first 10"),
        (1000, lambda k: 50 * (k >= 100), Measure(Edge(auto=True)), ""),
        (1000, lambda k: 50, Measure(), ""),
        (1000, lambda k: k // 10, Measure(), "still changing"),
        (1000, lambda k: k // 10, Measure(Edge(auto=True)), "still changing"),
        (999, lambda k: k // 10, Measure(), ""),
        # a quarter whose rate is 3 % lower counts, and half a point apart does not
        (1000, lambda k: 50 - 7 * (k < 60), Measure(), "the first "),
        (1000, lambda k: 50 - 6 * (k < 60), Measure(), ""),
        (1000, lambda k: 5 - (k < 120), Measure(), ""),
    ],
)
def test_a_beginning_that_fills_tiers_and_a_trend_are_remarked(count, cached, measure, says):
    arrivals = [10 * k for k in range(count)]
    columns = {"arrival_ns": arrivals, "first_token_ns": arrivals, "finish_ns": arrivals}
    hits = [cached(k) for k in range(count)]
    run = made_run(count, NO_SERIES, **columns, input_tokens=[100] * count, cached_prefix_length_used=hits)
    own = MeasuredRequests(4, measure, trace_of([[k] for k in range(count)], arrival_ns=arrivals))
    own.add(run.requests)
    remarks = own.chosen(run)[3]
    assert len(remarks) == bool(says)
    assert says in "".join(remarks)


def test_without_requests_all_are_measured_unless_a_part_is_left_out():
    empty = trace_of([])
    assert MeasuredRequests(4, Measure(), empty).marks_ns == ()
    with pytest.raises(UsageError):
        MeasuredRequests(4, Measure(Edge(requests=1)), empty)


@pytest.mark.parametrize("count", [7, 32, 100])
def test_the_marks_of_auto_are_arrivals_at_every_sixteenth_up_to_half_and_the_first_behind_the_end(count):
    trace = trace_of([[k] for k in range(count)], arrival_ns=[10 * n for n in range(count)])
    auto = MeasuredRequests(4, Measure(Edge(auto=True), Edge(requests=2)), trace)
    starts = {10 * (count * part // 16) for part in range(9)}
    assert auto.marks_ns == tuple(sorted(starts | {10 * (count - 2)}))
    assert auto.is_measured({"request": np.arange(count)}) is None
    assert MeasuredRequests(4, Measure(), trace).marks_ns == ()


@pytest.mark.parametrize("measure", [Measure(), Measure(Edge(requests=1))])
def test_jobs_are_those_of_whole_runs(measure):
    """A part of a run would cut off its jobs."""
    trace = replace(
        trace_of([[1]] * 3), session=np.array([0, 0, 1], np.int32), turn=np.array([0, 1, 0], np.int32)
    )
    trace = replace(trace, think_ns=np.array([-1, 5, -1]))
    own = MeasuredRequests(4, measure, trace)
    run = made_run(3)
    own.add(run.requests)
    assert (own.chosen(run)[1].jobs is None) is (measure != Measure())
