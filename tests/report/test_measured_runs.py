"""Figures of the measured part of real runs: those of its own rows, events and moves."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.cli.main import run
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.run import CountedTimes
from kvcache_sim.metrics.windows import between_marks
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions

COLD = """\
workload: {{kind: few-shot, requests: {requests}, pool_size: {pool},
           arrivals: {{process: poisson, rate_per_s: {rate}}}}}
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
    times = [CountedTimes(np.array([10, 20, 30]), np.array(counts)) for counts in ([3, 1, 0], [3, 2, 1])]
    marks = {
        at: mark._replace(counters=count, itl_ns=itl)
        for at, mark, count, itl in zip((begin, end), (first, last), counted, times, strict=False)
    }
    part = between_marks(replace(execution.run, counters=counted[2], marks=marks), begin, end)
    assert part.counters == {**dict.fromkeys(own, 7), "machines": 40}
    assert part.counted_ns == end - begin
    assert [column.tolist() for column in part.itl_ns] == [[20, 30], [1, 1]]  # nor the least that came before


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
workload: {kind: few-shot, pool_size: 40, requests: 240, output_tokens: 12,
           arrivals: {process: poisson, rate_per_s: 12}}
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
