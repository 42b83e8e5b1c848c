"""The summary's numbers against plain definitions, on made-up runs."""

import dataclasses
import itertools
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.units import format_time_ms
from kvcache_sim.metrics import prefix_cache
from kvcache_sim.metrics.columns import EVENT_COLUMNS, OUTCOMES, REQUEST_COLUMNS
from kvcache_sim.metrics.names import STABLE_METRICS, flatten
from kvcache_sim.metrics.percentiles import STATISTICS, describe, describe_counted
from kvcache_sim.metrics.prefix_cache import Medians
from kvcache_sim.metrics.run import COUNTERS, CodedText, CountedTimes, EngineUse, Run
from kvcache_sim.metrics.summary import DEFINITIONS, summarize
from kvcache_sim.metrics.summary_text import brief_text, percent, summary_text, time_cell
from kvcache_sim.metrics.ttft_parts import ROWS

WALL = {"cpu_s": 12345.678, "peak_rss_bytes": 3 << 40}


def made_run(count: int, **columns) -> Run:
    requests = {name: np.zeros(count, column.dtype) for name, column in REQUEST_COLUMNS.items()}
    requests["decode_machine"][:] = -1
    for name, values in columns.items():
        requests[name] = np.asarray(values, REQUEST_COLUMNS[name].dtype)
    itl = CountedTimes(np.array([10, 30]), np.array([3, 1]))
    counters = dict.fromkeys(COUNTERS, 5)
    events: dict = {
        name: np.zeros(0, column.dtype) for name, column in EVENT_COLUMNS.items() if column.dtype != "str"
    }
    events |= {"kind": CodedText(np.zeros(0, np.int32), ()), "detail": CodedText(np.zeros(0, np.int32), ())}
    return Run(
        requests,
        {},
        events,
        counters,
        itl,
        "e" * 64,
        "f" * 64,
        EngineUse("native", 44, 99),
        4_000_000_000,
        (),
    )


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


@given(
    st.lists(st.sampled_from([0, 1, 999, 10**6, 12_345_678_901_234, 2**53]), min_size=5, max_size=5),
    st.integers(1, 2**31 - 1),
)
def test_the_text_fits_a_terminal_of_80_by_25(values, tokens):
    a, b, c, d, e = values
    run = made_run(
        2,
        queue_ns=[a, b],
        first_token_ns=[a + c, b + d],
        finish_ns=[a + c + e, b + d + e],
        input_tokens=[tokens, 1],
        output_tokens=[2, 2],
        prefill_ns=[c, d],
    )
    text = summary_text({**summarize(run, 16), "wall": WALL}, f"run        runs/{'x' * 90}")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24  # and the line of the next command
    brief = brief_text(
        summarize(run, 16), f"run        runs/{'x' * 90}", "what was simulated " * 8
    ).splitlines()
    assert max(map(len, brief)) <= 80
    assert len(brief) <= 8


def test_the_brief_text_has_the_figures_that_are_asked_for_first_and_who_was_not_served():
    summary = summarize(example(), 512)
    text = brief_text(summary, "run        x", "one machine")
    assert text.splitlines()[:2] == ["one machine", "run        x"]
    assert f"{100 * summary['cache']['token_hit_rate']:.1f} % of tokens" in text
    assert f"p99 {format_time_ms(summary['latency']['ttft']['p99'])};" in text
    assert ("rejected" in text) == bool(summary["requests"]["rejected"])
    reported = summary | {"requests": summary["requests"] | {"failed": 7}}
    reported |= {"tiers": {"cpu": {"no_effect": "nothing was evicted"}}}
    assert "7 failed" in brief_text(reported, "x", "y")
    assert "no effect  nothing was evicted" in brief_text(reported, "x", "y")


def test_the_makespan_goes_from_the_first_arrival_to_the_last_end():
    ms = 1_000_000
    made = example()
    made.requests["arrival_ns"] += 500 * ms
    made.requests["finish_ns"][:2] = (np.int64(2_600 * ms), np.int64(2_500 * ms))
    throughput = summarize(made, 512)["throughput"]
    assert throughput["requests_per_s"] == pytest.approx(2 / 2.1)


FLEET = {"joined": 1, "drained": 2, "lost": 3, "retried": 1234}
LOST = {"tiers_lost": 4, "blocks_lost": 5678, "index_lost": 1}
CONTEXT = {"rejected": 0, "shortened": 0, "answers_ended": 0, "dropped_tokens": 4321, "max_model_len": 4096}
LENGTH = "of 4,096 tokens or more rejected: replica.on_overflow=slide, or another replica.max_model_len"
WAIT = {"avg": 1.5, "p99": None}
#: Changed members of a summary, and the lines under a label that follow; none: the label is not there.
LINES = [
    (
        {"fleet": FLEET | {"tiers_lost": 0}},
        "fleet",
        ["1 joined  2 drained  3 lost; 1,234 requests started again"],
    ),
    (
        {"fleet": LOST},
        "fleet",
        ["4 times a tier lost its copies, 5,678 blocks; 1 times the router lost its index"],
    ),
    ({"fleet": None}, "fleet", []),
    ({"context_window": CONTEXT}, "context", []),
    ({"context_window": CONTEXT | {"rejected": 1}}, "context", [f"1 prompt {LENGTH}"]),
    ({"context_window": CONTEXT | {"rejected": 2000}}, "context", [f"2,000 prompts {LENGTH}"]),
    (
        {"context_window": CONTEXT | {"shortened": 7, "answers_ended": 1}},
        "context",
        ["7 prompts lost 4,321 tokens of history; 1 answer ends at 4,096 tokens"],
    ),
    ({"context_window": CONTEXT | {"answers_ended": 2}}, "context", ["2 answers end at 4,096 tokens"]),
    (
        {"measure": {"requests": 1000, "from_request": 5, "to_request": 1004, "settled": True}},
        "measured",
        ["1,000 requests, of 5 to 1,004"],
    ),
    (
        {"measure": {"requests": 1, "from_request": 0, "to_request": 0, "settled": False}},
        "measured",
        ["1 requests, of 0 to 0, not settled"],
    ),
    ({"cache.dropped_blocks": 0}, "dropped", []),
    (
        {"cache.dropped_blocks": 1},
        "dropped",
        ["1 block, unwritten or orphaned: a larger lower tier keeps them"],
    ),
    (
        {"cache.dropped_blocks": 1000},
        "dropped",
        ["1,000 blocks, unwritten or orphaned: a larger lower tier keeps them"],
    ),
    ({"machines": {"requests": [7]}}, "machines", []),
    (
        {"machines": {"requests": [3, 0], "max_over_mean": 2, "jain": 0.5}},
        "machines",
        ["3 0 requests  max/mean 2.00  Jain 0.500  1 idle"],
    ),
    (
        {"machines": {"requests": [1000] * 5, "max_over_mean": 1, "jain": 1}},
        "machines",
        ["1,000 1,000 1,000 1,000 1,000 requests  max/mean 1.00  Jain 1.000"],
    ),
    (
        {"machines": {"requests": [1000] * 4 + [99999, 0], "max_over_mean": 1, "jain": 1}},
        "machines",
        ["0 to 99,999 on 6 requests  max/mean 1.00  Jain 1.000  1 idle"],
    ),
    ({"handover": {"requests": 0}}, "handover", []),
    (
        {"handover": {"requests": 2000, "share_of_ttft": 0.25, "wait": WAIT}},
        "handover",
        ["2,000 requests  wait avg 1.5 ms p99 -  25.0 % of their TTFT"],
    ),
    (
        {"cost": {"per_million_tokens": 1.25, "per_hour": None, "total": 12345.6}},
        "cost",
        ["1.25 a million tokens  - an hour  12,346 in all"],
    ),
    ({"jobs": {"completed": 0}}, "jobs", []),
    (
        {"jobs": {"completed": 1, "count": 2000, "completion": {"avg": 1.0, "p50": 2.0, "p99": 3.0}}},
        "jobs",
        ["1 of 2,000 completed; time mean 1 ms  p50 2 ms  p99 3 ms"],
    ),
    (
        {"throughput": {"requests_per_s": None, "output_tokens_per_s": None}},
        "throughput",
        ["none: no simulated time passed"],
    ),
    (
        {"throughput": {"requests_per_s": 1.25, "output_tokens_per_s": 20.0}},
        "throughput",
        ["1.25 requests/s  20 output tokens/s"],
    ),
    (
        {
            "slo": {
                "attainment": 0.5,
                "judged": 2000,
                "classes": {"long": {"attainment": None, "judged": 0}},
            },
            "goodput": {"requests_per_s": 1.0, "output_tokens_per_s": 2.0},
        },
        "slo",
        ["50.0 % of 2,000; goodput 1 requests/s  2 output tokens/s", "   none of 0 long"],
    ),
    (
        {
            "requests": {
                "arrived": 9_999_999,
                "finished": 10_000_000,
                "aborted": 0,
                "failed": 0,
                "rejected": 0,
            }
        },
        "requests",
        ["9,999,999 arrived  10.0M finished  0 rejected"],
    ),
    (
        {"requests": {"arrived": 10**13 - 1, "finished": 10**13, "failed": 1, "rejected_beyond_context": 3}},
        "requests",
        ["10,000,000.0M arrived  1.00e+13 finished  1 failed"],
    ),
]


@pytest.mark.parametrize(("changed", "label", "expected"), LINES)
def test_each_line_of_the_text_by_hand(changed, label, expected):
    summary = {**summarize(example(), 512), "wall": WALL}
    for name, value in changed.items():
        group, _, member = name.partition(".")
        summary[group] = summary[group] | {member: value} if member else value
    lines = summary_text(summary, "run        x").splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith(f"{label:<11}")), None)
    if start is None:
        assert expected == []
        return
    own = [lines[start], *itertools.takewhile(lambda line: line.startswith(" " * 11), lines[start + 1 :])]
    texts = [line[11:] for line in own]
    assert [" ".join(texts)] == expected if label in ("context", "dropped") else texts == expected


@pytest.mark.parametrize(
    ("value", "shown", "cell"),
    [(None, "none", "-"), (0.0, "0.00 %", "0"), (0.0999, "9.99 %", "0.0999"), (0.09995, "10.0 %", "0.0999")],
)
def test_shares_and_times_at_their_borders(value, shown, cell):
    assert percent(value) == f"{shown:>7}"
    assert time_cell(value) == cell


@pytest.mark.parametrize(("ms", "cell"), [(99_999.4, "99,999"), (99_999.5, "100 s"), (100_000.0, "100 s")])
def test_a_time_has_its_unit_from_a_hundred_seconds_on(ms, cell):
    assert time_cell(ms) == cell
    one = Medians(1, 2, 3, 4, ms, 5.0)
    counts = Counter(cached=1, prompts=8, hits=3, admitted=2000)
    words = cell if cell.endswith(" s") else f"{cell} ms"
    assert prefix_cache._sentence(counts, one) == (
        "3 requests hit, in full or in part, 1,997 missed; 12 % of prefill was saved; of 1 to 2 prompt tokens, "
        f"3 hits waited {words} at the median, 4 misses 5 ms"
    )
    assert prefix_cache._sentence(Counter(admitted=2), None) == "no request was admitted"
    none = Counter(prompts=8, admitted=2)
    assert prefix_cache._sentence(none, None) == "0 requests hit, in full or in part, 2 missed"


@pytest.mark.parametrize("every", [False, True])
def test_the_parts_of_ttft_stand_below_their_names(every):
    """In columns of eight, or of six where all parts are there."""
    summary = {**summarize(example(), 512), "wall": WALL}
    shown = {part.name: float(n + 1) for n, part in enumerate(ROWS) if every or not part.only_if_any}
    parts = {part.name: {"avg": shown.get(part.name, 0.0)} for part in ROWS}
    summary["latency"] = summary["latency"] | {"ttft_parts": parts}
    lines = summary_text(summary, "run        x").splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("TTFT avg = "))
    widths = [max(len(name), 6 if every else 8) for name in shown]
    names, values = (
        " + ".join(f"{one:>{width}}" for one, width in zip(row, widths, strict=True))
        for row in (shown, [f"{value:g}" for value in shown.values()])
    )
    ttft = time_cell(summary["latency"]["ttft"]["avg"])
    assert lines[at : at + 2] == [f"TTFT avg = {names}", f"{ttft:>8} = {values}"]
