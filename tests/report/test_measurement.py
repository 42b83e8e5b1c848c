"""The part of a run that is measured: against the rows themselves, the rule written out, and planted
transients."""

import json
import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run
from kvcache_sim.metrics import measurement
from kvcache_sim.metrics.channel_use import ChannelUse, later_use
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.measure_settings import Edge, Measure
from kvcache_sim.metrics.measurement import MeasuredRequests
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.metrics.tier_use import TierUse, later_tier_use
from kvcache_sim.metrics.windows import Windows, between_marks, steady_from
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.spec_demand import Demand
from support.examples import examples
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


def test_a_window_at_a_time_is_the_first_whose_requests_come_then_or_later():
    windows = Windows()
    windows.add({**rows_of(range(5)), "finish_ns": np.ones(5, np.int64), "arrival_ns": np.arange(5) * 10})
    assert [windows.window_at(at) for at in (0, 1, 10, 11, 40, 41)] == [0, 1, 1, 2, 4, 5]


EDGES = st.builds(Edge, time_ns=st.integers(0, 9)) | st.builds(Edge, requests=st.integers(0, 9))
EDGES |= st.builds(Edge, share=st.sampled_from([0.1, 0.25, 0.5]))


@examples(150)
@given(st.lists(st.integers(0, 12), min_size=3, max_size=12).map(sorted), EDGES, EDGES)
def test_what_is_measured_is_decided_request_by_request(arrivals, warmup, cooldown):
    trace, n = trace_of([[k] for k in range(len(arrivals))], arrival_ns=arrivals), len(arrivals)

    def left_out(edge, rank, since):
        if edge.time_ns is not None:
            return since < edge.time_ns
        return rank < (edge.requests if edge.share is None else math.floor(n * edge.share))

    expected = [
        not left_out(warmup, k, at - arrivals[0]) and not (left_out(cooldown, n - 1 - k, arrivals[-1] - at))
        for k, at in enumerate(arrivals)
    ]
    if any(k for k in expected):
        own = MeasuredRequests(4, Measure(warmup, cooldown), trace)
        rows = {"request": np.arange(n), "arrival_ns": np.array(arrivals)}
        assert own.is_measured(rows).tolist() == expected
        assert own.arrivals_ns()[0].tolist() == [
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


COLD = """\
workload: {{kind: few-shot, requests: {requests}, pool_size: {pool}, arrivals: {{process: poisson, rate_per_s: {rate}}}}}
tiers: {{gpu: {{capacity: {gpu}}}}}
"""


def executed(tmp_path, *overrides, requests=1200, pool=300, rate=2, gpu="20000 blocks"):
    scenario = scenario_from_text(
        COLD.format(requests=requests, pool=pool, rate=rate, gpu=gpu), "s", tmp_path, overrides
    )
    return execute(scenario, read_requests(scenario), RunOptions())


@pytest.mark.parametrize(
    ("warmup", "cooldown"),
    [("10%", "null"), ("300 requests", "25%"), ("90s", "100 requests"), ("null", "60s"), ("auto", "null")],
)
def test_the_figures_are_those_of_the_rows_that_are_measured(tmp_path, warmup, cooldown):
    made = executed(tmp_path, f"measure.warmup={warmup}", f"measure.cooldown={cooldown}", requests=700)
    rows, said = made.run.requests, made.summary["measure"]
    number, arrival = rows["request"], rows["arrival_ns"]
    inside = (number >= said["from_request"]) & (number < said["to_request"])
    if warmup == "90s":
        inside &= arrival >= arrival.min() + 90 * 10**9
    if cooldown == "60s":
        inside &= arrival <= arrival.max() - 60 * 10**9
    assert 0 < inside.sum() < 700
    assert said["requests"] == made.summary["requests"]["arrived"] == inside.sum()
    cached, tokens = rows["cached_prefix_length_used"][inside].sum(), rows["input_tokens"][inside].sum()
    assert made.summary["cache"]["token_hit_rate"] == cached / tokens
    ttft = (rows["first_token_ns"] - arrival)[inside] / 1e6
    assert made.summary["latency"]["ttft"]["avg"] == pytest.approx(ttft.mean())
    span_s = (rows["finish_ns"][inside].max() - arrival[inside].min()) / 1e9
    assert made.summary["throughput"]["requests_per_s"] == pytest.approx(inside.sum() / span_s)
    assert made.run.digest_results == executed(tmp_path, requests=700).run.digest_results


def test_auto_leaves_out_the_time_in_which_a_cold_cache_fills(tmp_path):
    small = {"requests": 1500, "gpu": "1000 blocks"}
    whole, auto = executed(tmp_path, **small), executed(tmp_path, "measure.warmup=auto", **small)
    assert auto.summary["measure"]["settled"]
    assert 0 < auto.summary["measure"]["from_request"] <= 750
    assert auto.summary["cache"]["token_hit_rate"] > whole.summary["cache"]["token_hit_rate"] + 0.02
    assert "measure" not in whole.summary
    assert any("measure.warmup=auto leaves them out" in one for one in whole.warnings)
    assert not any("by quarter" in one for one in auto.warnings)


def test_a_run_that_never_settles_says_so(tmp_path):
    never = executed(tmp_path, requests=1200, pool=4000)
    assert any("the hit rate is still changing at the end" in one for one in never.warnings)
    fine = executed(tmp_path, pool=1)
    assert not any("still changing" in one for one in fine.warnings)


def test_rows_that_leave_give_the_same_summary(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(COLD.format(requests=700, pool=300, rate=2, gpu="20000 blocks"))
    assert run(["simulate", "-c", "s.yaml", "--set", "measure.warmup=auto", "-o", "out"]) == 0
    assert "measured   " in capsys.readouterr().out
    kept = executed(tmp_path, "measure.warmup=auto", requests=700).summary
    stored = load_run(tmp_path / "out").summary
    for group in ("measure", "requests", "tokens", "cache", "latency", "throughput"):
        assert stored[group] == json.loads(json.dumps(kept[group]))


OPEN = """
workload: {kind: diverse, requests: 300, arrivals: {process: poisson, rate_per_s: 40}, output_tokens: 12}
tiers: {gpu: {capacity: 60 blocks}, cpu: {capacity: 30 blocks}}
cluster: {machines: 2}
measure: {warmup: 30%, cooldown: 20%}
"""


def stepped(text, **options):
    scenario = scenario_from_text(text, "s", Path.cwd())
    trace = read_requests(scenario)
    return trace, execute(scenario, trace, RunOptions(record_window_ns=(0, 1 << 60), **options))


def test_what_is_counted_while_the_measured_requests_arrive():
    """Evictions against the run's own events, times between tokens against a run that ends there."""
    trace, execution = stepped(OPEN)
    summary = execution.summary
    assert "latency.itl" not in summary["measure"]["whole_run"]
    begin, end = int(trace.arrival_ns[90]), int(trace.arrival_ns[240])
    events = execution.run.events
    kinds = np.array([events["kind"].words[code] for code in events["kind"].codes])
    inside = (events["time_ns"] > begin) & (events["time_ns"] <= end) & (kinds == "evict")
    tiers = np.array([events["detail"].words[code] for code in events["detail"].codes])
    for tier in ("gpu", "cpu"):
        reported = int(events["blocks"][inside & np.char.startswith(tiers, tier)].sum())
        assert summary["cache"]["evictions"][tier] == reported > 0
    whole = execution.run
    first, last = (sum(whole.marks[at].itl_ns.counts) for at in (begin, end))
    assert 0 < last - first < sum(whole.itl_ns.counts)


def test_a_window_of_times_begins_when_its_time_has_come():
    """Not when its first request does: what happens between the two is measured."""
    trace, execution = stepped(OPEN.replace("warmup: 30%, cooldown: 20%", "warmup: 2s, cooldown: 1s"))
    begin, end = int(trace.arrival_ns.min()) + 2 * 10**9, int(trace.arrival_ns.max()) - 10**9 + 1
    assert sorted(execution.run.marks) == [begin, end]
    assert begin not in trace.arrival_ns.tolist()


def test_a_part_has_counters_of_its_own():
    """Counters of a part cover all that the summary reports over time; what describes a machine stays."""
    _, execution = stepped(OPEN)
    (begin, first), (end, last) = sorted(execution.run.marks.items())
    own = (
        "evictions.gpu",
        "dropped_blocks",
        "merged_blocks",
        "edge.gpu->cpu.blocks",
        "speculation.drafts",
        "groups.0.evicted_blocks",
        "router.index_evictions",
        "membership.joined",
        "tenants.a.tokens",
        "retention.dropped_blocks",
        "models.a.tokens",
        "adapters.a.tokens",
        *(f"pool.{name}.blocks" for name in ("hit", "put", "read", "refused", "evicted", "lost")),
    )
    counted = [dict.fromkeys([*own, "machines"], count) for count in (5, 12, 40)]
    marks = {begin: first._replace(counters=counted[0]), end: last._replace(counters=counted[1])}
    part = between_marks(replace(execution.run, counters=counted[2], marks=marks), begin, end)
    assert part.counters == {**dict.fromkeys(own, 7), "machines": 40}
    assert part.counted_ns == end - begin


def test_the_marks_change_no_result():
    without = OPEN.replace("measure: {warmup: 30%, cooldown: 20%}", "")
    assert stepped(OPEN)[1].summary["digest"] == stepped(without)[1].summary["digest"]
    assert stepped(OPEN)[1].summary["latency"]["itl"] != stepped(without)[1].summary["latency"]["itl"]


def test_all_is_measured_is_the_whole_run():
    every = OPEN.replace("warmup: 30%, cooldown: 20%", "warmup: 0 requests")
    measured, whole = (
        stepped(text)[1].summary
        for text in (every, OPEN.replace("measure: {warmup: 30%, cooldown: 20%}", ""))
    )
    assert measured["latency"] == whole["latency"]
    assert measured["cache"] == whole["cache"]


def test_where_arrivals_are_not_known_the_whole_run_is_counted():
    closed = OPEN.replace(
        "kind: diverse, requests: 300, arrivals: {process: poisson, rate_per_s: 40}",
        "kind: conversational, requests: 100, loop: closed",
    )
    assert "latency.itl" in stepped(closed)[1].summary["measure"]["whole_run"]


BUSY = """
workload: {kind: few-shot, pool_size: 40, requests: 240, arrivals: {process: poisson, rate_per_s: 12}, output_tokens: 12}
cache: {block_size: 64}
tiers: {gpu: {capacity: 400 blocks}, cpu: {capacity: 4000 blocks}}
cluster: {machines: 2}
channels: {pcie: {bandwidth: 9GB/s, latency: 0s, sharing: SHARING, edges: [gpu->cpu, cpu->gpu]}}
measure: {warmup: 30%, cooldown: 20%}
"""


def moved(run, begin, end):
    """Return by machine's channel the time it was sending in (begin, end], and by edge the jobs begun
    there."""
    events = run.events
    kinds = np.array([events["kind"].words[code] for code in events["kind"].codes])
    own = kinds == "transfer"
    start = events["time_ns"][own]
    stop = start + events["duration_ns"][own]
    edges = np.array([events["detail"].words[code] for code in events["detail"].codes])[own]
    inside = np.maximum(np.minimum(stop, end) - np.maximum(start, begin), 0)
    busy = {m: int(inside[events["machine"][own] == m].sum()) for m in (0, 1)}
    begun = (start > begin) & (start <= end)
    blocks = {edge: int(events["blocks"][own][begun & (edges == edge)].sum()) for edge in set(edges.tolist())}
    return busy, blocks


def test_tiers_and_channels_are_those_of_the_measured_time():
    trace, execution = stepped(BUSY.replace("SHARING", "fifo"))
    begin, end = int(trace.arrival_ns[72]), int(trace.arrival_ns[192])
    busy, _ = moved(execution.run, begin, end)
    channels = execution.summary["channels"]
    assert {f"pcie-{m}" for m in busy} == channels.keys()
    for machine, time_ns in busy.items():
        assert channels[f"pcie-{machine}"]["busy_share"] == pytest.approx(time_ns / (end - begin), rel=1e-9)
    assert not {"tiers", "channels"} & set(execution.summary["measure"]["whole_run"])
    tiers = execution.summary["tiers"]
    assert tiers["cpu"]["written_bytes"] + tiers["gpu"]["written_bytes"] == sum(
        c["bytes"] for c in channels.values()
    )
    assert 0 < tiers["gpu"]["written_bytes"] == tiers["cpu"]["read_bytes"]


@pytest.mark.parametrize("sharing", ["fifo", "fair"])
def test_the_parts_of_a_run_add_up_to_it(sharing):
    text = BUSY.replace("SHARING", sharing).replace(
        "measure: {warmup: 30%, cooldown: 20%}", "measure: {MEASURE}"
    )
    trace = stepped(text.replace("MEASURE", "warmup: 0 requests"))[0]
    parts = [
        stepped(text.replace("MEASURE", edges))[1].summary
        for edges in (
            "cooldown: 168 requests",
            "warmup: 72 requests, cooldown: 48 requests",
            "warmup: 192 requests",
        )
    ]
    whole = stepped(text.replace("measure: {MEASURE}", ""))[1].summary
    for name, channel in whole["channels"].items():
        for figure in ("bytes", "jobs", "queued_s"):
            assert sum(part["channels"][name][figure] for part in parts) == pytest.approx(channel[figure])
    for tier, use in whole["tiers"].items():
        for figure in ("written_bytes", "read_bytes"):
            assert sum(part["tiers"][tier][figure] for part in parts) == use[figure]
    assert trace.arrival_ns[72] < trace.arrival_ns[192]


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


def test_causes_of_misses_are_those_of_the_measured_requests():
    text = OPEN.replace("measure: {warmup: 30%, cooldown: 20%}", "measure: {warmup: auto}")
    _, execution = stepped(text, causes=True)
    rows, said = execution.run.requests, execution.summary["measure"]
    inside = rows["request"] >= said["from_request"]
    missed = (rows["input_tokens"] - rows["cached_prefix_length_used"])[
        inside & (rows["finish_ns"] >= 0)
    ].sum()
    assert execution.summary["misses"]["tokens"] == missed
    assert said["from_request"] > 0


@pytest.mark.parametrize("requests", [39, 40])
@pytest.mark.parametrize("windows", [7, 8])
def test_a_run_has_settled_once_its_rate_is_steady_and_its_tiers_full_in_its_first_half(
    monkeypatch, requests, windows
):
    for steady in (None, *range(windows)):
        for full in range(windows):
            own = MeasuredRequests(4, Measure(), None)
            own.windows = SimpleNamespace(
                requests=requests,
                settled_window=lambda own=steady: own,
                window_at=lambda at_ns: at_ns // 10,
                size=5,
                sums=[0] * windows,
            )
            monkeypatch.setattr(measurement, "_full_from_ns", lambda run, own=full: 10 * own)
            expected = None if steady is None or max(steady, full) > windows // 2 else 5 * max(steady, full)
            assert own._settled_request(None) == (0 if requests < 40 else expected)


@examples(60)
@given(st.data())
def test_tiers_are_full_when_the_last_bounded_one_is_near_its_most(data):
    """Two machines and three tiers, one of them unbounded, and other series, in parts of the run."""
    words = *(f"{tier}.{what}" for tier in ("gpu", "cpu", "disk") for what in ("free", "cached")), "x.free"
    rows, free = [], defaultdict(lambda: defaultdict(float))
    for at_ns in range(0, 10 * data.draw(st.integers(1, 6)), 10):
        for _ in range(2):
            for code, word in enumerate(words):
                tier, what = word.split(".")
                value = float(data.draw(st.integers(0, 100))) + (2.0**51 if tier == "disk" else 0)
                rows.append((at_ns, code, value))
                if what == "free" and tier in ("gpu", "cpu"):
                    free[tier][at_ns] += value
    parts, cut = [], 2 * len(words) * data.draw(st.integers(1, 3))  # a time is whole in its part
    for start in range(0, len(rows), cut):
        own = [np.array(column) for column in zip(*rows[start : start + cut], strict=True)]
        parts.append({"time_ns": own[0], "name": CodedText(own[1], words), "value": own[2]})
    run = SimpleNamespace(series=parts[0])
    fulls = []
    for total in free.values():
        most, least = max(total.values()), min(total.values())
        fulls.append(min(at for at, blocks in total.items() if most - blocks >= 0.95 * (most - least)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measurement, "parts_of", lambda _: parts)
        assert measurement._full_from_ns(run) == max(fulls)


def test_without_requests_all_are_measured_unless_a_part_is_left_out():
    empty = trace_of([])
    assert MeasuredRequests(4, Measure(), empty).marks_ns == ()
    with pytest.raises(UsageError):
        MeasuredRequests(4, Measure(Edge(requests=1)), empty)


@pytest.mark.parametrize("count", [7, 32, 100])
def test_auto_may_leave_out_up_to_the_first_half_and_a_part_of_a_run_has_no_jobs(monkeypatch, count):
    """The starts are every sixteenth; the marks are the arrivals at these, and the first one behind the end."""
    arrivals = [10 * n for n in range(count)]
    trace = trace_of([[k] for k in range(count)], arrival_ns=arrivals)
    monkeypatch.setattr(measurement, "jobs_of", lambda trace: np.zeros(len(trace), np.int32))
    auto = MeasuredRequests(4, Measure(Edge(auto=True), Edge(requests=2)), trace)
    starts = sorted({count * part // 16 for part in range(9)})
    assert list(auto._totals) == starts
    assert auto.is_measured({"request": np.arange(count)}) is None
    assert auto.marks_ns == tuple(sorted({10 * start for start in starts} | {10 * (count - 2)}))
    assert all(totals.jobs is None for totals in auto._totals.values())
    assert MeasuredRequests(4, Measure(), trace)._totals[0].jobs is not None
    assert MeasuredRequests(4, Measure(), trace).marks_ns == ()
