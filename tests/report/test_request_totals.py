"""Totals of requests, jobs, tiers and machines: each row by itself, and closed forms on a few rows."""

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import InputOutputError
from kvcache_sim.metrics.batches import batch_count
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
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.measure import reusable_tokens
from support.examples import examples
from support.product.reports import Column, batch_figures
from support.request_rows import rows
from support.small_traces import trace_of

S = 10**9
NO_WORDS = CodedText(np.zeros(0, np.int32), ())
DAY = 86_400 * S


#: Columns of a request that are drawn, and the most of each.
DRAWN = {
    "machine": 1,
    "arrival_ns": 30,
    "first_token_ns": 30,
    "finish_ns": 30,
    "input_tokens": 12,
    "output_tokens": 5,
    "cached_prefix_length_used": 12,
    "preemptions": 4,
    "queue_ns": 4,
    "handover_room_ns": 4,
    "recomputed_tokens": 4,
}
LEAST = {"input_tokens": 1, "output_tokens": 1}
drawn_requests = st.lists(
    st.fixed_dictionaries(
        {name: st.integers(LEAST.get(name, 0), most) for name, most in DRAWN.items()}
        | {"status": st.sampled_from((0, 0, 0, 1, 3))}
    ),
    max_size=20,
)
#: A hit of a whole prompt, a later row that arrived earlier, and a failed request as long as its context.
THREE = [
    dict(zip((*DRAWN, "status"), row, strict=True))
    for row in (
        (0, 9, 1, 5, 8, 4, 8, 0, 3, 4, 0, 0),
        (1, 3, 4, 4, 8, 4, 4, 1, 1, 2, 0, 0),
        (0, 0, 0, 0, 9, 9, 0, 2, 0, 0, 0, 3),
    )
]


@examples(60)
@example(THREE, 1, [4] * 20)
@given(drawn_requests, st.integers(1, 5), st.lists(st.integers(0, 12), min_size=20, max_size=20))
def test_totals_are_those_of_each_request_by_itself(drawn, step, reusable):
    """Rows come ``step`` at a time; contexts are 9 and 11 tokens, blocks 4; TTFT may be 10 ns."""
    contexts, size = np.array([9, 11]), 4
    own = [dict(row) for row in drawn]
    for one in own:
        one["first_token_ns"] = one["arrival_ns"] + one["first_token_ns"] if not one["status"] else -1
        one["finish_ns"] = one["first_token_ns"] + one["finish_ns"] if not one["status"] else -1
        one["cached_prefix_length_used"] = min(one["cached_prefix_length_used"], one["input_tokens"])
    columns = rows(len(own), **{name: [one[name] for one in own] for name in (*DRAWN, "status")})
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
        input=inputs,
        cached=cached,
        output=sum_of("output_tokens"),
        recomputed=sum_of("recomputed_tokens"),
        preemptions=sum(one["preemptions"] for one in own),
        block_refs=sum(one["input_tokens"] // size for one in done),
        hit_blocks=sum(one["cached_prefix_length_used"] // size for one in done),
        prefilled=0,
        reusable=sum(
            max(reusable[n], one["cached_prefix_length_used"])
            for n, one in enumerate(own)
            if not one["status"]
        ),
    )
    if not done:
        assert totals.request_hit_rate is totals.upper_bound_token_hit_rate is None
        assert totals.makespan_ns == 0
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
            for one in done
            if one["output_tokens"] > 1
        ],
    }
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
        rows(
            4,
            input_tokens=[3, 4, 8, 8],
            outcome=[2, 2, 0, 1],
            session=[-1, -1, 0, -1],
            turn=[0, 0, 1, 0],
            cached_prefix_length_used=[0, 0, 4, 4],
            num_tokens_actually_prefilled=[3, 4, 4, 4],
        )
    )
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
        rows(
            3,
            decode_machine=[2, -1, 0],
            handover_ns=[4, 99, 0],
            handover_gap_ns=[0, 99, 6],
            handover_room_ns=[1, 99, 2],
            handover_blocks=[3, 9, 5],
            first_token_ns=[10, 99, 10],
            finish_ns=[30, 99, 20],
        )
    )
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
    uses = [TierUse("disk", 100, written, 5, 0, 3, True) for written in (300, 900)]
    uses.append(TierUse("gpu", 10, 99, 0, 0, 0, True))
    of_tier = summarize_tiers(tuple(uses), dict.fromkeys(("gpu", "cpu", "disk", "remote"), 0), 2 * DAY)
    assert of_tier["gpu"]["drive_writes_per_day"] is None
    assert [of_tier[tier]["present"] for tier in ("disk", "cpu")] == [2, 0]
    found = of_tier["disk"]
    assert (found["drive_writes_per_day"], found["drive_writes_per_day_hottest"]) == (3.0, 4.5)
    assert (found["written_bytes"], found["read_bytes"], found["duplicate_blocks"]) == (1200, 10, 6)
    assert found["no_effect"] == "disk had no effect: cpu never evicted a block"


def test_a_tier_had_no_effect_if_it_had_none_in_the_whole_run():
    """All was evicted and written before the measured part."""
    part, whole = ([TierUse(tier, 9, n, 0, n, 0, True) for tier in ("gpu", "cpu")] for n in (0, 5))
    uses = tuple(replace(own, whole=all_of_it) for own, all_of_it in zip(part, whole, strict=True))
    found = summarize_tiers(uses, dict.fromkeys(("gpu", "cpu", "disk", "remote"), 0), DAY)["cpu"]["no_effect"]
    assert found == "cpu served nothing: no block was loaded from it"


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
    assert servers_of(latency, 500.0, 0.1) == 1
    assert servers_of({**latency, "itl": {"avg": None, "min": None}}, 500.0, 4.0) == 1


@pytest.mark.parametrize(
    ("waits", "saturated"),
    [([9] * 5, True), ([0, 0, 0, 0, 40], False), ([0, 0, 0, 0, 99], True), ([1] * 5, False)],
)
def test_waits_saturate_at_mean_and_median_or_at_nine_tenths_of_the_mean(waits, saturated):
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


@pytest.mark.parametrize(("full_hit", "reused"), [("skip-prefill", 8), ("prefill-remainder", 4)])
def test_what_could_be_reused_follows_the_cache_and_the_context(full_hit, reused):
    """Three equal prompts of two blocks: the last is recomputed unless full hits skip it; one that fills the
    context is rejected and writes nothing."""
    trace = trace_of([["a", "b"]] * 3, 4)
    for context, expected in ((None, reused), (9, reused), (8, 0)):
        limit = "" if context is None else f"replica: {{max_model_len: {context}}}\n"
        text = (
            f"cache: {{block_size: 4, full_hit: {full_hit}}}\ntiers: {{gpu: {{capacity: 9 blocks}}}}\n{limit}"
        )
        scenario = scenario_from_text(text, "s.yaml", None)
        assert reusable_tokens(scenario, trace).tolist() == [0, expected, expected]
