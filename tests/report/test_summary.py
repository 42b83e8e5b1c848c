"""The summary's numbers against plain definitions, on made-up runs."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.metrics.columns import OUTCOMES
from kvcache_sim.metrics.names import STABLE_METRICS
from kvcache_sim.metrics.percentiles import STATISTICS, describe, describe_counted
from kvcache_sim.metrics.run import CountedTimes, Run
from kvcache_sim.metrics.summary import DEFINITIONS, summarize
from report.made_run import made_run
from support.product.reports import flatten, summary_text

WALL = {"cpu_s": 12345.678, "peak_rss_bytes": 3 << 40}


def example() -> Run:
    """Three requests: a hit of 1,024 of 1,500 tokens, a miss of 700, and one rejected."""
    ms = 1_000_000
    return made_run(
        3,
        status=[0, 0, 1],
        outcome=[OUTCOMES.index("CROSS_REQUEST_HIT"), OUTCOMES.index("MISS_FULL"), 0],
        machine=[0, 1, -1],
        arrival_ns=[0, 1000 * ms, 1500 * ms],
        queue_ns=[1 * ms, 3 * ms, 0],
        prefill_ns=[9 * ms, 17 * ms, 0],
        first_token_ns=[10 * ms, 1020 * ms, -1],
        finish_ns=[40 * ms, 2000 * ms, -1],
        input_tokens=[1500, 700, 9999],
        output_tokens=[4, 1, 0],
        cached_prefix_length_used=[1024, 0, 0],
        cached_gpu_tokens=[512, 0, 0],
        cached_cpu_tokens=[512, 0, 0],
        num_tokens_actually_prefilled=[476, 700, 0],
        preemptions=[0, 2, 0],
    )


def test_the_example_by_hand():
    summary = summarize(example(), 512)
    assert summary["requests"] == {
        "arrived": 3,
        "finished": 2,
        "rejected": 1,
        "rejected_beyond_context": 0,
        "turned_away": 0,
        "aborted": 0,
        "failed": 0,
        "preemptions": 2,
    }
    tokens = summary["tokens"]
    assert (tokens["input"], tokens["output"], tokens["cached"], tokens["prefilled"]) == (2200, 5, 1024, 1176)
    cache = summary["cache"]
    assert (cache["block_refs"], cache["hit_blocks"]) == (2 + 1, 2)
    assert cache["token_hit_rate"] == 1024 / 2200
    assert cache["block_hit_rate"] == 2 / 3
    assert cache["request_hit_rate"] == (1024 / 1500 + 0) / 2
    assert cache["hit_tokens"] == {"gpu": 512, "cpu": 512, "disk": 0, "remote": 0}
    assert cache["evictions"] == {"gpu": 5, "cpu": 5, "disk": 5}
    latency = summary["latency"]
    assert latency["ttft"]["avg"] == 15.0
    assert latency["tpot"] == dict.fromkeys(STATISTICS, 10.0) | {"std": 0.0}
    assert latency["itl"]["avg"] == 15 / 1e6
    assert latency["e2e"]["max"] == 1000.0
    assert sum(latency["ttft_parts"][part]["avg"] for part in latency["ttft_parts"]) == latency["ttft"]["avg"]
    assert summary["throughput"] == {"requests_per_s": 1.0, "output_tokens_per_s": 2.5}
    assert summary["machines"]["requests"] == [1, 1]
    assert summary["machines"]["jain"] == 1.0


def test_every_stable_name_is_there():
    summary = {**summarize(example(), 512), "wall": WALL}
    names = flatten(summary)
    assert {name for name in STABLE_METRICS if not name.startswith(("cost.", "slo.", "goodput."))} <= set(
        names
    )
    for name in ("digest.events", "digest.results"):
        assert isinstance(names[name], str)
    for rate in ("token", "block", "request"):
        assert f"cache.{rate}_hit_rate" in DEFINITIONS
    assert list(summary["latency"]["ttft"]) == list(STATISTICS)


def test_nothing_measured_is_null_and_still_json():
    summary = summarize(
        dataclasses.replace(made_run(2, status=[1, 1]), itl_ns=CountedTimes(*[np.zeros(0, np.int64)] * 2)),
        512,
    )
    assert summary["cache"]["token_hit_rate"] is None
    assert summary["latency"]["ttft"]["p99"] is None
    assert summary["throughput"]["requests_per_s"] is None
    json.dumps(summary, allow_nan=False)
    summary_text({**summary, "wall": WALL}, "x")


@given(st.lists(st.integers(0, 2**52), min_size=1, max_size=60))
def test_percentiles_are_numpys_linear_ones(values):
    array = np.array(values, np.int64)
    got = describe(array)
    for name, rank in {"p99": 99, "p90": 90, "p75": 75, "p50": 50}.items():
        assert np.isclose(got[name], np.percentile(array, rank) / 1e6, rtol=1e-12)
    assert got["avg"] == sum(values) / len(values) / 1e6
    assert np.isclose(got["std"], np.std(array) / 1e6, rtol=1e-6, atol=1e-9)
    assert (got["min"], got["max"]) == (min(values) / 1e6, max(values) / 1e6)


@given(st.dictionaries(st.integers(0, 10**9), st.integers(1, 20), min_size=1, max_size=20))
def test_a_counted_histogram_is_its_values_repeated(counted):
    values = np.array(sorted(counted), np.int64)
    counts = np.array([counted[int(value)] for value in values])
    assert describe_counted(CountedTimes(values, counts)) == describe(np.repeat(values, counts))


def test_the_makespan_goes_from_the_first_arrival_to_the_last_end():
    ms = 1_000_000
    made = example()
    made.requests["arrival_ns"] += 500 * ms
    made.requests["finish_ns"][:2] = (np.int64(2_600 * ms), np.int64(2_500 * ms))
    throughput = summarize(made, 512)["throughput"]
    assert throughput["requests_per_s"] == pytest.approx(2 / 2.1)
