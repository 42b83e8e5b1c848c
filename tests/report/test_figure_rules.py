"""Figures that one function computes, by closed forms on a few rows."""

import math
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import InputOutputError, UsageError
from kvcache_sim.channels.settings import ChannelSettings
from kvcache_sim.extras.study.sizing.further import Tried, rates_by_count
from kvcache_sim.extras.study.sizing.search import arrival_rate, highest_attaining, rate_spread
from kvcache_sim.extras.study.sizing.splits import best_split
from kvcache_sim.extras.study.sweeps.cell import canonical_json
from kvcache_sim.metrics.batches import batch_count, batch_figures
from kvcache_sim.metrics.columns import Column
from kvcache_sim.metrics.handover_summary import HandoverTotals
from kvcache_sim.metrics.jobs import JobTotals
from kvcache_sim.metrics.load_run import check_columns
from kvcache_sim.metrics.machine_loads import added, summarize_loads
from kvcache_sim.metrics.percentiles import describe
from kvcache_sim.metrics.prefix_cache import PrefixCacheTotals
from kvcache_sim.metrics.request_totals import RequestTotals
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.metrics.saturation import servers_of, summarize_saturation
from kvcache_sim.metrics.slo import Limits, Objectives
from kvcache_sim.metrics.tier_use import TierUse, summarize_tiers
from kvcache_sim.report.intervals import certainty as intervals
from kvcache_sim.report.intervals import links
from kvcache_sim.scenario import cost, measure
from kvcache_sim.workload.generate.lengths import given_keys
from support.examples import examples
from support.request_rows import rows
from support.small_traces import trace_of

S = 10**9
NO_WORDS = CodedText(np.zeros(0, np.int32), ())
DAY = 86_400 * S


# --- requests ----------------------------------------------------------------------------------------------


#: Columns of a request that are drawn; those of 9 are tokens.
DRAWN = ("status", "machine", "arrival_ns", "first_token_ns", "finish_ns", "input_tokens", "output_tokens",
         "cached_prefix_length_used", "preemptions", "queue_ns", "handover_room_ns", "recomputed_tokens")  # fmt: skip
drawn_requests = st.lists(
    st.tuples(st.sampled_from((0, 0, 0, 1, 3)), st.integers(0, 1), *[st.integers(0, 30)] * 3, st.integers(1, 12),
              st.integers(1, 5), st.integers(0, 12), *[st.integers(0, 4)] * 4), max_size=20,
)  # fmt: skip


@examples(60)
@example(
    [
        (0, 0, 9, 1, 5, 8, 4, 8, 0, 3, 4, 0),
        (0, 1, 3, 4, 4, 8, 4, 4, 1, 1, 2, 0),
        (3, 0, 0, 0, 0, 9, 9, 0, 2, 0, 0, 0),
    ],
    1,
    [4] * 20,
)
@given(drawn_requests, st.integers(1, 5), st.lists(st.integers(0, 12), min_size=20, max_size=20))
def test_totals_are_those_of_each_request_by_itself(drawn, step, reusable):
    """Rows come ``step`` at a time; contexts are 9 and 11 tokens, blocks 4; TTFT may be 10 ns."""
    contexts, size = np.array([9, 11]), 4
    own = [dict(zip(DRAWN, row, strict=True)) for row in drawn]
    for one in own:
        one["first_token_ns"] = one["arrival_ns"] + one["first_token_ns"] if not one["status"] else -1
        one["finish_ns"] = one["first_token_ns"] + one["finish_ns"] if not one["status"] else -1
        one["cached_prefix_length_used"] = min(one["cached_prefix_length_used"], one["input_tokens"])
    columns = rows(len(own), **{name: [one[name] for one in own] for name in DRAWN})
    totals = RequestTotals(size, Objectives(Limits(10)), None, np.array(reusable), contexts)
    for start in range(0, len(own) + step, step):
        totals.add({name: column[start : start + step] for name, column in columns.items()})
    done = [one for one in own if not one["status"]]
    beyond = [one for one in own if one["status"] == 1 and one["input_tokens"] >= contexts[one["machine"]]]
    full = [one for one in done if one["input_tokens"] + one["output_tokens"] == contexts[one["machine"]]]

    def sum_of(name):
        return sum(one[name] for one in done)

    assert (totals.arrived, totals.finished) == (len(own), len(done))
    assert (totals.rejected, totals.failed) == tuple(sum(one["status"] == n for one in own) for n in (1, 3))
    assert (totals.rejected_beyond_context, totals.answers_at_context) == (len(beyond), len(full))
    assert totals.attainment.figures(1)["slo"]["judged"] == len(own) - len(beyond)
    inputs, cached = sum_of("input_tokens"), sum_of("cached_prefix_length_used")
    assert +totals.sums == +Counter(
        input=inputs, cached=cached, output=sum_of("output_tokens"), recomputed=sum_of("recomputed_tokens"),
        preemptions=sum(one["preemptions"] for one in own), block_refs=sum(one["input_tokens"] // size for one in done),
        hit_blocks=sum(one["cached_prefix_length_used"] // size for one in done), prefilled=0,
        reusable=sum(max(reusable[n], one["cached_prefix_length_used"]) for n, one in enumerate(own) if not one["status"]),
    )  # fmt: skip
    if not done:
        assert (totals.request_hit_rate, totals.upper_bound_token_hit_rate, totals.makespan_ns) == (
            None,
            None,
            0,
        )
        return
    shares = [one["cached_prefix_length_used"] / one["input_tokens"] for one in done]
    assert totals.request_hit_rate == pytest.approx(sum(shares) / len(done))
    assert totals.upper_bound_token_hit_rate == totals.sums["reusable"] / inputs
    assert totals.makespan_ns == max(one["finish_ns"] for one in done) - min(one["arrival_ns"] for one in own)
    spans = {
        "ttft": [one["first_token_ns"] - one["arrival_ns"] for one in done],
        "e2e": [one["finish_ns"] - one["arrival_ns"] for one in done],
        "queue": [one["queue_ns"] for one in done],
        "tpot": [
            round((one["finish_ns"] - one["first_token_ns"]) / (one["output_tokens"] - 1))
            for one in done if one["output_tokens"] > 1
        ],
    }  # fmt: skip
    latencies = totals.latencies()
    assert {name: latencies[name] for name in spans} == {
        name: describe(np.array(times, np.int64)) for name, times in spans.items()
    }
    assert latencies["ttft_parts"]["queue"] == latencies["queue"]
    waits = [one["queue_ns"] + one["handover_room_ns"] for one in done]
    assert totals.wait() == describe(np.array(waits))


def test_shares_of_hits():
    """Blocks of 4: a prompt of 3 cannot hit; one of three eligible is a session's hit, one hits across."""
    totals = PrefixCacheTotals(4)
    totals.add(
        rows(4, input_tokens=[3, 4, 8, 8], outcome=[2, 2, 0, 1], session=[-1, -1, 0, -1], turn=[0, 0, 1, 0],
             cached_prefix_length_used=[0, 0, 4, 4], num_tokens_actually_prefilled=[3, 4, 4, 4])
    )  # fmt: skip
    found = totals.figures({"kind": NO_WORDS, "detail": NO_WORDS})
    names = ("eligible", "conversational_turns", "overall_hit_rate", "conversational_hit_rate")
    assert [found[name] for name in names] == [3, 1, 2 / 3, 1]
    assert (found["cross_request_hit_rate"], found["prefill_ratio"]) == (1 / 2, 15 / 23)


def test_a_job_lasts_from_its_first_arrival_to_its_last_token_in_whatever_order():
    totals = JobTotals(np.array([0, 1, 0, 0]))
    totals.add_finished(rows(1, request=[2], arrival_ns=[50], finish_ns=[60]))
    totals.add_finished(rows(2, request=[0, 3], arrival_ns=[10, 20], finish_ns=[90, 25]))
    found = totals.figures()["jobs"]
    assert (found["count"], found["completed"]) == (2, 1)
    assert (found["completion"]["avg"], found["serving"]["avg"]) == (80e-6, 95e-6)


def test_a_hand_over_waits_before_and_behind_the_first_token():
    totals = HandoverTotals()
    totals.add(
        rows(3, decode_machine=[2, -1, 0], handover_ns=[4, 99, 0], handover_gap_ns=[0, 99, 6],
             handover_room_ns=[1, 99, 2], handover_blocks=[3, 9, 5], first_token_ns=[10, 99, 10], finish_ns=[30, 99, 20])
    )  # fmt: skip
    found = totals.figures({"machines": 4, "edge.handover.bytes": 7})
    assert (found["share_of_ttft"], found["share_of_e2e"]) == (4 / 20, 10 / 50)
    assert (found["requests"], found["blocks"], found["machines"]) == (2, 8, [1, 0, 1, 0])
    assert (found["wait"]["max"], found["room"]["max"]) == (6e-6, 2e-6)


def test_batches_of_few_and_of_many_requests():
    assert [batch_count(n) for n in (0, 49, 50, 999, 1000)] == [0, 0, 10, 10, 20]


def test_without_a_batch_the_rate_is_that_of_the_rest_of_the_time():
    """A token a second, in even steps: the rate stays whichever tenth of the time is left out."""
    at = np.arange(100) * S
    found = batch_figures(
        rows(100, arrival_ns=at, first_token_ns=at + 1, finish_ns=at + S, output_tokens=[1] * 100)
    )
    assert found["throughput.output_tokens_per_s"] == pytest.approx([1.0] * 10, rel=0.02)
    assert found["latency.e2e.avg"] == pytest.approx([1000.0] * 10)
    assert "latency.tpot.avg" not in found, "no answer has a second token"


def test_a_drive_wears_by_its_writes_over_its_size_and_days():
    uses = tuple(TierUse("disk", 100, written, 5, 0, 3, True) for written in (300, 900))
    found = summarize_tiers(uses, dict.fromkeys(("gpu", "cpu", "disk", "remote"), 0), 2 * DAY)["disk"]
    assert (found["drive_writes_per_day"], found["drive_writes_per_day_hottest"]) == (3.0, 4.5)
    assert (found["written_bytes"], found["read_bytes"], found["duplicate_blocks"]) == (1200, 10, 6)
    assert found["no_effect"] == "disk had no effect: cpu never evicted a block"


def test_a_tier_had_no_effect_if_it_had_none_in_the_whole_run():
    """All was evicted and written before the measured part."""
    part, whole = ([TierUse(tier, 9, n, 0, n, 0, True) for tier in ("gpu", "cpu")] for n in (0, 5))
    uses = tuple(replace(own, whole=all_of_it) for own, all_of_it in zip(part, whole, strict=True))
    found = summarize_tiers(uses, dict.fromkeys(("gpu", "cpu", "disk", "remote"), 0), DAY)["cpu"]["no_effect"]
    assert found == "cpu had no effect: no block written to it was requested again"


def test_machines_that_only_decode_are_no_part_of_the_balance():
    found = summarize_loads(
        np.array([6, 2, 0]), {"machines": 4, "machine.2.routed": 0, "machine.3.routed": 0}
    )
    assert found == {"requests": [6, 2, 0, 0], "max_over_mean": 1.5, "jain": 64 / 2 / 40}
    for machines, counts in (([], [6, 2, 0]), ([0, 2, 2], [7, 2, 2]), ([4, 1], [6, 3, 0, 0, 1])):
        assert added(np.array([6, 2, 0]), np.array(machines, np.int16)).tolist() == counts


@pytest.mark.parametrize(("mean_ms", "servers"), [(19, 12.0), (20, 12.0), (21, 1.0)])
def test_the_servers_of_a_queue_are_the_requests_in_service(mean_ms, servers):
    """Four a second that take 3 s each, while steps stay below twice the shortest, of 10 ms."""
    latency = {"itl": {"avg": mean_ms, "min": 10}, "e2e": {"avg": 3500.0}}
    assert servers_of(latency, 500.0, 4.0) == servers


@pytest.mark.parametrize(
    ("waits", "saturated"), [([9] * 5, True), ([0, 0, 0, 0, 99], False), ([1] * 5, False)]
)
def test_waits_saturate_at_the_mean_and_at_the_median(waits, saturated):
    wait = np.array(waits) * S
    found = summarize_saturation(describe(wait), describe(wait + S), 2000.0, None)
    assert found["saturated"] is saturated


@pytest.mark.parametrize(
    ("stored", "dtype", "is_read"),
    [
        (np.zeros(2, np.int32), "int64", True),
        (np.zeros(2, np.int64), "int64", True),
        (np.zeros(2), "int64", False),
        (np.zeros(2, np.int16), "float64", False),
        (NO_WORDS, "str", True),
        (NO_WORDS, "int64", False),
        (np.zeros(2, np.int64), "str", False),
    ],
)
def test_a_stored_column_has_the_kind_of_its_schema(stored, dtype, is_read):
    """Whole numbers of another width are read; what is not asked for is never looked at."""
    with nullcontext() if is_read else pytest.raises(InputOutputError, match="column a has another type"):
        check_columns({"a": stored, "b": NO_WORDS}, {"a": Column(dtype, "")}, Path("x"))
    with pytest.raises(InputOutputError, match="lacks a column; got no c"):
        check_columns({"a": stored}, {"c": Column(dtype, "")}, Path("x"))


# --- sizing ------------------------------------------------------------------------------------------------


def test_the_rate_of_n_arrivals_has_one_gap_less():
    run = SimpleNamespace(requests={"arrival_ns": [5 * S, S, 3 * S]})
    assert arrival_rate(run) == 0.5


@pytest.mark.parametrize("last", [-40, -1, 0, 34, 35, 36, 40])
def test_a_search_tries_no_step_beyond_its_range(last):
    tried = []
    found = highest_attaining(lambda step: tried.append(step) or step <= last, -40, 40)
    assert (found.attains, found.fails) == (last, last + 1 if last < 40 else None)
    assert min(tried) >= -40
    assert max(tried) <= 40


@pytest.mark.parametrize(("count", "batches", "t"), [(51, 10, 2.262), (1001, 20, 2.093)])
def test_the_interval_of_a_rate_follows_from_neighboring_batches(count, batches, t):
    """Loads of the batches alternate between 1 and e: each step of the logarithm is 1."""
    arrival = np.arange(count) * S
    batch = np.arange(count - 1) * batches // (count - 1)
    stayed = np.where(batch % 2, math.e, 1.0) * S
    finish = arrival + np.concatenate([[S], stayed]).astype(np.int64)
    spread = rate_spread({"arrival_ns": arrival, "finish_ns": finish})
    assert spread == pytest.approx(math.exp(t * math.sqrt(1 / 2 / batches)), rel=1e-6)


def test_of_equal_splits_the_one_with_fewest_prefill_machines_and_of_counts_the_best_rate():
    assert best_split({3: 2.0, 1: 2.0, 2: 1.0, 4: None}) == 1
    tried = [Tried({}, 4, 2.0), Tried({}, 4, 1.0), Tried({}, 4, None), Tried({}, 2, None)]
    assert rates_by_count(tried) == {4: 2.0, 2: None}


@pytest.mark.parametrize(
    ("ends", "requests", "expected"),
    [
        ([], None, (None, None, None, None, None, None)), ([30, 10], (15, 25), (9, 31, 15, 25, 30, 10)), ([10, 30], (21, 25), (9, 31, 20, 25, 10, 30)),
        ([None, 10], (15, 19), (9, 11, 15, 20, None, 10)), ([30, None], None, (29, 31, None, None, 30, None)), ([None, None], None, (None,) * 6),
    ],
)  # fmt: skip
def test_the_ends_of_a_figure_are_its_requests_and_its_models(monkeypatch, ends, requests, expected):
    """An interval over requests holds the value; that of the model lies around the ends that have the figure."""
    done = SimpleNamespace(
        scenario=None, measured=SimpleNamespace(times=SimpleNamespace(chosen=str), is_inside=0),
        summary={"requests": {"finished": 1}, "latency": {"ttft": {"p99": 20}}},
    )  # fmt: skip
    monkeypatch.setattr(intervals, "_kinds", lambda scenario: "kinds")
    monkeypatch.setattr(intervals, "load_of_summary", lambda summary: "load")
    monkeypatch.setattr(
        intervals, "request_intervals", lambda times: {"ttft_p99": requests} if requests else {}
    )
    monkeypatch.setattr(
        intervals, "model_interval", lambda figure, value, high, low, *of: (low - 1, high + 1)
    )
    found = intervals.certainty(done, [{"latency": {"ttft": {"p99": end}}} for end in ends])
    names = ("model_low", "model_high", "requests_low", "requests_high", "slow", "fast")
    assert found == {"ttft_p99": dict(zip(names, expected, strict=True))}
    done.summary["requests"]["finished"] = 0
    assert intervals.certainty(done, [])["ttft_p99"]["requests_low"] is None


def test_a_value_has_one_text_and_a_request_kv_but_for_its_last_token():
    assert canonical_json({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"\\u00e9"]}'
    for value in (math.nan, -math.inf):
        with pytest.raises(ValueError, match="JSON"):
            canonical_json({"a": value})
    trace = trace_of([["a"], ["a"], ["b"]], 16, [5, 6, 7], None, [0, 1, 4])
    assert trace.kv_tokens.tolist() == [5, 6, 10]


def test_a_slower_link_takes_so_many_times_as_long_in_each_of_its_terms(monkeypatch):
    monkeypatch.setattr(links, "with_channels", lambda settings, names, sections, slower: slower(settings))
    channel = ChannelSettings(
        "c", bandwidth_bytes_per_s=1000, latency_ns=10, piece_overhead_ns=30, piece_gap_ns=70
    )
    for factor, expected in (
        (2.0, (500, 20, 60, 140)),
        (0.5, (2000, 5, 15, 35)),
        (3000.0, (1, 30_000, 90_000, 210_000)),
    ):
        found = links._with_links([], (), channel, factor)
        assert (
            found.bandwidth_bytes_per_s,
            found.latency_ns,
            found.piece_overhead_ns,
            found.piece_gap_ns,
        ) == expected


def test_keys_of_a_kind_are_all_given_and_no_others():
    assert given_keys("here", "a", ("x", "y"), {"y": 1, "x": 2}) == {"y": 1, "x": 2}
    for keys in ({"x": 1}, {"x": 1, "y": 2, "z": 3}, {}):
        with pytest.raises(UsageError, match="keys of a"):
            given_keys("here", "a", ("x", "y"), keys)


# --- cost --------------------------------------------------------------------------------------------------


def scenario_with(prices, tiers, own=(), scaling=None, replica=None):
    """Return a stand-in of a scenario; blocks of machine n have n GiB, twice that where ``tiers`` say so."""
    machines = [SimpleNamespace(tiers=[SimpleNamespace(name=name, capacity_blocks=blocks, form=SimpleNamespace(bytes_of=lambda n, times=times: times * n))
                                       for name, blocks, times in each]) for each in tiers]  # fmt: skip
    settings = SimpleNamespace(
        machines=machines, membership=SimpleNamespace(scaling=scaling),
        cache_of=lambda number: SimpleNamespace(block_bytes=(number + 1) << 30),
    )  # fmt: skip
    common = {"step_time": "a", "pp": None} | (replica or {})
    return SimpleNamespace(
        model=SimpleNamespace(cost=prices), settings=settings, resolved={"replica": common, "machines": list(own)},
        tree=SimpleNamespace(location=lambda path: ".".join(path)),
    )  # fmt: skip


PRICES = SimpleNamespace(gpus_per_machine=None, gpu_hour=3.0, dram_gib_month=730.0, nvme_gib_month=73.0)
SUMMARY = {
    "tokens": {"input": 3000, "output": 1000}, "throughput": {"output_tokens_per_s": 5.0}, "fleet": {"machine_s": 90.0},
    "latency": {},
}  # fmt: skip


def test_the_cost_of_a_run_by_hand(monkeypatch):
    """GPUs of each machine's step times and stages, and GiB of the lower tiers by the month of 730 hours."""
    degrees = {"a": 2, "b": 8}
    monkeypatch.setattr(cost, "measured_on", lambda name: SimpleNamespace(tensor_parallel=degrees[name]))
    tiers = [
        [("gpu", None, 1), ("cpu", 10, 1), ("disk", 20, 2)],
        [("gpu", None, 1), ("cpu", 10, 1)],
        [("gpu", 5, 1)],
    ]
    own = ({}, {"replica": {"step_time": "b", "pp": 3}})
    hourly = 3.0 * (2 + 24 + 2) + 10 + 0.1 * 20 * 2 + 2 * 10
    found = cost.cost_of(scenario_with(PRICES, tiers, own), SUMMARY)
    total = hourly * 200 / 3600
    assert found == pytest.approx({
        "per_hour": hourly, "total": total, "per_million_tokens": total / 4000 * 1e6, "per_million_output_tokens": total / 1000 * 1e6,
    })  # fmt: skip
    given = SimpleNamespace(**{**vars(PRICES), "gpus_per_machine": 4})
    assert cost.cost_of(scenario_with(given, tiers, own), SUMMARY)["per_hour"] == pytest.approx(
        hourly + 3.0 * (12 - 28)
    )
    staged = cost.cost_of(scenario_with(PRICES, tiers[2:], replica={"pp": 4}), SUMMARY)
    assert staged["per_hour"] == 24.0
    scaled = cost.cost_of(scenario_with(PRICES, tiers, own, scaling="queue"), SUMMARY)
    assert (scaled["per_hour"], scaled["total"]) == pytest.approx((hourly, hourly / 3 * 90 / 3600))
    idle = SUMMARY | {"tokens": {"input": 0, "output": 0}, "throughput": {"output_tokens_per_s": None}}
    assert cost.cost_of(scenario_with(PRICES, tiers, own), idle) == {
        "per_hour": pytest.approx(hourly), "total": None, "per_million_tokens": None, "per_million_output_tokens": None,
    }  # fmt: skip
    assert cost.cost_of(scenario_with(None, tiers), SUMMARY) is None
    assert cost.with_cost(scenario_with(None, tiers), SUMMARY) is SUMMARY
    assert list(cost.with_cost(scenario_with(PRICES, tiers), SUMMARY)) == [
        "tokens",
        "throughput",
        "cost",
        "fleet",
        "latency",
    ]
    with pytest.raises(UsageError, match="an unbounded disk tier has no price"):
        cost.cost_of(scenario_with(PRICES, [[("gpu", None, 1), ("disk", None, 1)]]), SUMMARY)
    free = SimpleNamespace(**{**vars(PRICES), "nvme_gib_month": 0.0})
    assert (
        cost.cost_of(scenario_with(free, [[("gpu", None, 1), ("disk", None, 1)]]), SUMMARY)["per_hour"] == 6.0
    )


def test_without_a_batch_a_token_costs_the_more_the_fewer_are_made():
    summary = {
        "cost": {"per_million_tokens": 2.0, "per_million_output_tokens": None},
        "throughput": {"output_tokens_per_s": 6.0},
    }
    rates = {"throughput.output_tokens_per_s": [3.0, 12.0]}
    assert cost.costs_by_batch(summary, rates) == {"cost.per_million_tokens": [4.0, 1.0]}
    for none in ({}, {"throughput.output_tokens_per_s": [3.0, 0.0]}):
        assert cost.costs_by_batch(summary, none) == {}
    assert cost.costs_by_batch(summary | {"cost": None}, rates) == {}


# --- what a run's figures are made of ----------------------------------------------------------------------


@pytest.mark.parametrize("handed_over", [0, 1])
@pytest.mark.parametrize("began", [False, True])
def test_a_summary_is_of_all_rows_and_pools_have_one_server(monkeypatch, handed_over, began):
    asked, added = [], []
    ttft, wait = {"avg": 9.0}, {"avg": 4.0}
    made = {
        "latency": {"ttft": ttft, "itl": {"avg": 5.0}},
        "handover": {"requests": handed_over},
        "throughput": {"requests_per_s": 3.0},
    }
    monkeypatch.setattr(measure, "summarize", lambda part, size, totals: dict(made) | {"of": (part, size)})
    monkeypatch.setattr(measure, "servers_of", lambda latency, wait_ms, rate: 100 * wait_ms + rate)
    monkeypatch.setattr(
        measure, "summarize_saturation", lambda *own: asked.append(own) or {"saturated": True}
    )
    monkeypatch.setattr(measure, "GROUP_ROWS", 2)
    totals = SimpleNamespace(wait=lambda: wait)
    requests = SimpleNamespace(began=began, add=lambda part: added.append(part["request"].tolist()), arrivals_ns=lambda: "arrivals",
                               chosen=lambda run: ("part", totals, {"settled": True} if began else None, ("remark",)))  # fmt: skip
    scenario = SimpleNamespace(model=SimpleNamespace(cache=SimpleNamespace(block_size=16)))
    monkeypatch.setattr(measure, "replace", lambda run, warnings: warnings)
    run = SimpleNamespace(requests=rows(5), warnings=("first",))
    warnings, summary, own = measure.measured_summary(scenario, run, requests)
    assert added == ([] if began else [[0, 1], [2, 3], [4]])
    assert (warnings, own, summary["of"], summary["saturated"]) == (
        ("first", "remark"),
        totals,
        ("part", 16),
        True,
    )
    assert summary.get("measure") == ({"settled": True} if began else None)
    assert asked == [(wait, ttft, 5.0, "arrivals", 1.0 if handed_over else 403.0)]


@pytest.mark.parametrize(("full_hit", "skips"), [("skip-prefill", True), ("recompute", False)])
@pytest.mark.parametrize("context", [None, 8])
def test_what_could_be_reused_follows_the_cache_and_the_context(monkeypatch, full_hit, skips, context):
    asked = []
    monkeypatch.setattr(measure, "upper_bound_hit_tokens", lambda *own: asked.append(own))
    monkeypatch.setattr(measure, "context_tokens", lambda settings, trace: context)
    cache = SimpleNamespace(cache_output="outputs", block_size=4, full_hit=full_hit)
    trace = SimpleNamespace(input_tokens=np.array([7, 8, 9]))
    measure.reusable_tokens(SimpleNamespace(model=SimpleNamespace(cache=cache), settings=None), trace)
    ((*own, rejected),) = asked
    assert own == [trace, "outputs", 4, skips]
    assert (None if rejected is None else rejected.tolist()) == (
        None if context is None else [False, True, True]
    )
