"""Sessions at a time: lanes, entries into a recording, primers, recycling and idle limits, in real runs."""

import json
import random

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import open_requests, read_requests
from kvcache_sim.simulation import RunOptions

#: A step takes 1 s, so an answer of n tokens takes n seconds.
BASE = (
    "cache: {block_size: 64}\ntiers: {gpu: {capacity: unbounded}}\n"
    "replica: {step_time: 'linear:base=1s,token=0ms', max_num_seqs: 999}\n"
)


def turn(at, took, ids):
    return {"t": at, "type": "n", "in": 64 * len(ids), "out": took, "hash_ids": [*ids], "api_time": took}


def agent(name="x"):
    """The trace of the worked example: two turns, a sub-agent of two requests, two more turns."""
    inner = [turn(18, 4, range(21, 25)), turn(26, 8, range(21, 27))]
    sub = {"t": 17, "type": "subagent", "agent_id": "a", "duration_ms": 17_000, "requests": inner}
    own = [turn(0, 4, range(1, 5)), turn(10, 6, range(1, 9)), sub]
    own += [turn(40, 5, range(1, 13)), turn(100, 10, range(1, 17))]
    return {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": own}


def run(folder, rows, *settings, base=BASE):
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scenario = scenario_from_text(base + "trace: {path: t.jsonl}\n", "s", folder, settings)
    return execute(scenario, open_requests(scenario, RunOptions()), RunOptions())


def times_s(made, first=0):
    """Return arrival and finish of each request in seconds, from the given instant on."""
    rows = made.run.requests
    return [
        (start / 1e9 - first, end / 1e9 - first)
        for start, end in zip(rows["arrival_ns"].tolist(), rows["finish_ns"].tolist(), strict=True)
    ]


ENTERED = ("workload.concurrency=1", "workload.plays=2", "workload.enter=[0.25, 0.25]")


def test_a_lane_enters_a_recording_behind_primers(tmp_path):
    made = run(tmp_path, [agent()], *ENTERED)
    assert times_s(made)[:2] == [(0, 1), (8, 9)]  # r1 15 s before the entry, s0 7 s before it
    assert times_s(made, 9)[2:6] == [(1, 9), (9, 14), (69, 79), (79, 83)]
    cached = made.run.requests["cached_prefix_length_used"].tolist()
    assert cached[:6] == [0, 0, 256, 512, 768, 0]  # nothing of the first play hits in the second
    assert made.run.requests["output_tokens"][:2].tolist() == [1, 1]
    assert made.summary["requests"]["arrived"] == 9  # the primers are not measured


@pytest.mark.parametrize(("primers", "cached"), [("spread", 1536), ("burst", 1536), ("none", 768)])
def test_primers_make_the_hits_of_the_profile(tmp_path, primers, cached):
    settings = () if primers == "spread" else (f"workload.primers={primers}",)
    made = run(tmp_path, [agent()], *ENTERED, "workload.plays=1", *settings)
    assert (made.summary["tokens"]["cached"], made.summary["tokens"]["input"]) == (cached, 2176)
    barrier = {"spread": 9, "burst": 1, "none": 0}[primers]
    assert times_s(made, barrier)[-3:] == [(1, 9), (9, 14), (69, 79)]


@pytest.mark.parametrize(
    ("setting", "prompts", "profile"),
    [
        # s1 ends the sub-agent, so that r2 is due; r3 waits its 55 s behind r2
        ("1", [512, 256, 384], [(0, 5), (60, 70)]),
        # r2 is the next one by time: r3 waits what is left of 100 s after the end of r2 at 45 s
        ("2", [512, 256, 384, 768], [(55, 65)]),
        ("9", [512, 256, 384, 768], [(55, 65)]),  # one request of a lane is left
        ("3, workload.warmup=repeat", [512, 256, 512, 256, 512], [(1, 9), (9, 14), (69, 79)]),
    ],
)
def test_a_warm_up_advances_behind_the_primers_or_repeats_them(tmp_path, setting, prompts, profile):
    settings = f"workload.warmup_requests={setting}".split(", ")
    made = run(tmp_path, [agent()], *ENTERED, "workload.plays=1", *settings)
    n = len(prompts)
    assert made.run.requests["input_tokens"][:n].tolist() == prompts
    assert times_s(made)[2:n] == [(9 + k, 10 + k) for k in range(n - 2)]
    assert times_s(made, 9 + n - 2)[n:] == profile
    assert made.summary["requests"]["arrived"] == len(profile)
    until = run(tmp_path, [agent()], *ENTERED, "workload.plays=1", *settings, "measure.duration=56s")
    assert until.summary["requests"]["arrived"] == sum(at < 56 for at, _ in profile)


def test_idle_time_is_cut_while_nothing_is_in_flight_anywhere_or_in_the_tree(tmp_path):
    capped = run(tmp_path, [agent()], *ENTERED, "workload.idle_cap=10s")
    assert times_s(capped, 9)[4:6] == [(24, 34), (34, 38)]
    wide = run(tmp_path, [agent()], *ENTERED, "workload.tree_idle_cap=300s")
    assert times_s(wide, 9)[4:6] == [(69, 79), (79, 83)]
    # another lane that is always busy: time is not cut for all, but it is for a tree
    busy = {"id": "b", "block_size": 64, "hash_id_scope": "local", "requests": [turn(0, 400, [9])]}
    two = ("workload.concurrency=2",)
    for limit, last in ((("workload.idle_cap=10s",), 100), (("workload.tree_idle_cap=10s",), 55)):
        made = run(tmp_path, [agent(), busy], *two, *limit)
        assert times_s(made)[5][0] == last  # 45 s is the end of the turn before it


def test_the_entry_of_each_lane_is_that_of_aiperf(tmp_path):
    """Lanes 0 and 1 enter at 69.11758 and 66.66081 s of 0 to 100, with seed 42."""
    settings = ("workload.concurrency=2", "workload.enter=[0.25, 0.75]", "seed=42")
    made = run(tmp_path, [agent()], *settings)
    arrivals = [start for start, _ in times_s(made)]
    assert arrivals[:2] == [0, pytest.approx(69.11758 - 66.66081, abs=1e-5)]
    barrier = arrivals[1] + 1
    assert [at - barrier for at in arrivals[2:]] == pytest.approx([100 - 69.11758, 100 - 66.66081], abs=1e-5)
    whole = run(tmp_path, [agent()], *settings[::2], "workload.enter=[0, 1]")
    arrivals = [start for start, _ in times_s(whole)]
    assert arrivals[1] == pytest.approx(88.23516 - 83.32162, abs=1e-5)


def plain(n, seconds=0, **members):
    """Return a row whose answer takes n seconds, with one block of its own."""
    ids = [members.pop("block", 1000 + n)]
    return {"timestamp": 1000 * seconds, "input_length": 64, "output_length": n, "hash_ids": ids, **members}


def test_the_lane_that_is_free_first_takes_the_next_tree(tmp_path):
    """Requests without sessions are clients that send one after the other; 5 and 2 s, then 4, 1 and 3 s.

    What arrives as another one ends joins the step after the one that begins then, if any does.
    """
    rows = [plain(n, seconds=50 * k) for k, n in enumerate((5, 2, 4, 1, 3))]
    made = run(tmp_path, rows, "workload.concurrency=2", "cache.block_size=64", "trace.block_size=64")
    assert times_s(made) == [(0, 5), (0, 2), (2, 7), (5, 7), (7, 10)]
    assert times_s(run(tmp_path, rows[:1], "workload.concurrency=3", "trace.block_size=64")) == [(0, 5)] * 3


def test_another_pass_shares_no_block_with_the_one_before(tmp_path):
    rows = [plain(2, block=7), plain(2, block=7)]
    settings = """
        workload.concurrency=1 workload.plays=4 trace.block_size=64 cache.full_hit=skip-prefill
    """.split()
    made = run(tmp_path, rows, *settings)
    assert made.run.requests["cached_prefix_length_used"].tolist() == [0, 64, 0, 64]
    assert made.trace.sha256 == run(tmp_path, rows, "trace.block_size=64").trace.sha256 != ""


@pytest.mark.parametrize("seed", range(8))
def test_no_more_trees_than_lanes_are_played_and_none_waits_for_a_free_lane(tmp_path, seed):
    """Recomputed from the rows: a play begins at 0 or as another one ends, and each has its own turns."""
    draw = random.Random(seed)
    rows = []
    for k in range(draw.randint(3, 9)):
        at, own = 0.0, []
        for n in range(draw.randint(1, 5)):
            own.append(turn(at, draw.randint(1, 4), [100 * k + i for i in range(n + 1)]))
            at += draw.randint(0, 9)
        rows.append({**agent(f"s{k}"), "requests": own})
    lanes, plays = draw.randint(1, 4), draw.randint(4, 15)
    enter = [f"workload.enter=[0.{draw.randint(0, 4)}, 0.{draw.randint(5, 9)}]"] * draw.randint(0, 1)
    made = run(
        tmp_path, rows, f"workload.concurrency={lanes}", f"workload.plays={plays}", f"seed={seed}", *enter
    )
    found, play = made.run.requests, made.trace.play
    spans = []
    begin = found["finish_ns"][play == -1].max(initial=0)
    for k in range(plays):
        mine = play == k
        spans.append((int(found["arrival_ns"][mine].min()), int(found["finish_ns"][mine].max())))
        if k >= lanes:
            assert mine.sum() == len(rows[k % len(rows)]["requests"])
    starts = [start for start, _ in spans]
    ends = sorted(end for _, end in spans)
    assert starts[lanes:] == ends[: plays - lanes]
    assert min(starts[:lanes]) >= begin
    if not enter:
        assert starts[:lanes] == [0] * lanes
    assert np.all(np.diff(found["request"]) == 1)


def test_speed_and_sessions_of_a_trace_are_keys(tmp_path):
    rows = [plain(n, seconds=4 * n, session_id=f"s{n % 3}", block=n) for n in range(1, 10)]
    made = run(tmp_path, rows, "trace.block_size=64", "trace.speed=0.5")
    assert [start for start, _ in times_s(made)] == [8 * n for n in range(1, 10)]
    few = [run(tmp_path, rows, "trace.block_size=64", f"trace.sessions={n}").trace for n in (1, 2, 3)]
    assert [len(trace) for trace in few] == [3, 6, 9]
    named = [set(trace.session_names) for trace in few]
    assert named[0] < named[1] < named[2]
    with pytest.raises(UsageError, match="more sessions than the trace has"):
        run(tmp_path, rows, "trace.block_size=64", "trace.sessions=4")
    with pytest.raises(UsageError, match=r"trace\.speed changes the load"):
        run(tmp_path, [plain(1)], "trace.block_size=64", "trace.sessions=1")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("workload.plays=3",), "set workload.concurrency"),
        (("workload.concurrency=4", "workload.plays=3"), "workload.concurrency is larger"),
        (("workload.concurrency=1", "workload.primers=burst"), "set workload.enter"),
        (("workload.concurrency=1", "workload.enter=[0.5, 0.2]"), "its end lies before its begin"),
        (("workload.concurrency=1", "workload.enter=[0.5]"), "workload.enter"),
        (("workload.concurrency=1", "workload.enter=[0.5, 2]"), "workload.enter"),
        (("workload.concurrency=0",), "workload.concurrency"),
        (("workload.concurrency=2000000000",), "more requests than a run holds"),
        (("workload.concurrency=1", "replica.instant=true"), "one by one"),
        (("trace.speed=0",), "trace.speed"),
    ],
)
def test_settings_that_cannot_matter_are_refused(tmp_path, settings, words):
    base = BASE if "replica.instant=true" not in settings else "cache: {block_size: 64}\n"
    with pytest.raises(UsageError) as refused:
        run(tmp_path, [agent()], *settings, base=base)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_specification_names_what_it_has_not(tmp_path):
    (tmp_path / "t.jsonl").write_text(json.dumps(agent()) + "\n")
    text = BASE + "trace: {path: t.jsonl}\nworkload: {concurrency: 2}\n"
    scenario = scenario_from_text(text, "s", tmp_path)
    with pytest.raises(UsageError, match="sessions at a time are not covered"):
        open_requests(scenario, RunOptions(engine="spec"))
    assert read_requests(scenario).lanes.count == 2
