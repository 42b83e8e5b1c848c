"""Hints of a trace's rows: what a closed session leaves, TTL by tool, copies that wait below."""

from __future__ import annotations

import json
import random

import pytest
from kvcache_sim.errors import KvsimError
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.lookahead import by_the_clock


def run_of(tmp_path, rows, more="", section="retention: {}"):
    """Return the run of (second, session, ids, further members)."""
    lines = [
        {"timestamp": round(1000 * at), "input_length": 512 * len(ids), "output_length": 2, "hash_ids": ids,
         **({} if session is None else {"session_id": session, "turn": sum(r[1] == session for r in rows[:n])}),
         **members}
        for n, (at, session, ids, members) in enumerate(rows)
    ]  # fmt: skip
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tiers = more if more.startswith("tiers") else f"tiers: {{gpu: {{capacity: 64 blocks}}}}\n{more}"
    text = f"trace: {{path: t.jsonl}}\n{section}\n{tiers}"
    scenario = scenario_from_text(text, "s", tmp_path)
    trace = read_requests(scenario)
    made = by_the_clock(lambda: execute(scenario, trace, RunOptions(check="full")))
    assert len({run.summary["digest"]["results"] + run.summary["digest"]["events"] for run in made}) == 1
    return made[0].run


def found(run):
    """Return the leading blocks that each request found; of a whole prompt the last token is computed again."""
    return [-(-own // 512) for own in run.requests["cached_prefix_length_used"].tolist()]


CLOSE, DEMOTE = {"retention": "close"}, {"retention": "demote"}


def test_a_closed_session_leaves_what_others_have_used(tmp_path):
    rows = [
        (0, "a", [0, 1, 2], {}),
        (2, "b", [0, 7, 8], {}),
        (4, "a", [0, 1, 2, 3], CLOSE),
        (6, "a", [0, 1, 2, 4], {}),
        (8, "b", [0, 7, 8, 9], {}),
    ]
    run = run_of(tmp_path, rows)
    assert found(run) == [0, 1, 3, 1, 3]
    assert run.counters["retention.dropped_blocks"] == 3


@pytest.mark.parametrize("gap_s", [2.9, 3.1])
def test_a_time_to_live_counts_from_the_end_of_a_request_unless_it_is_used_again(tmp_path, gap_s):
    rows = [
        (0, "a", [0, 1], {"retention": 3}),
        (gap_s, "a", [0, 1, 2], {}),
        (20, "a", [0, 1, 2, 5], {}),
    ]
    run = run_of(tmp_path, rows)
    ended_s = run.requests["finish_ns"][0] / 1e9
    survives = rows[1][0] < ended_s + 3
    # used again in time, the blocks stay when the three seconds are over
    assert found(run) == ([0, 2, 3] if survives else [0, 0, 3])
    assert survives == (gap_s < 3)


def test_time_to_live_by_tool(tmp_path):
    rows = [
        (0, "a", [0, 1], {"tool": "bash"}),
        (0, "b", [10, 11], {"tool": "search"}),
        (0, "c", [20, 21], {"tool": "other"}),
        (0, "d", [30, 31], {"tool": "bash", "retention": 60}),
        *(
            (9, name, [first, first + 1, first + 2], {})
            for name, first in zip("abcd", (0, 10, 20, 30), strict=True)
        ),
    ]
    run = run_of(tmp_path, rows, section="retention: {ttl_s: {bash: 5.0, search: 30.0}}")
    assert found(run)[4:] == [0, 2, 2, 2]


def test_demoted_copies_are_found_below(tmp_path):
    more = "write: {policy: through}"
    rows = [(0, "a", [0, 1, 2], DEMOTE), (5, "a", [0, 1, 2, 3], {}), (9, "b", [50], {})]
    lower = "retention: {}\ntiers: {gpu: {capacity: 64 blocks}, cpu: {capacity: 90 blocks}}"
    lines = [
        {
            "timestamp": 1000 * at,
            "input_length": 512 * len(ids),
            "output_length": 400,
            "hash_ids": ids,
            **members,
        }
        for at, _, ids, members in rows
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    scenario = scenario_from_text(f"trace: {{path: t.jsonl}}\n{lower}\n{more}", "s", tmp_path)
    made = [execute(scenario, read_requests(scenario), RunOptions(check="full")).run]
    assert made[0].requests["cached_gpu_tokens"][1] == 0
    assert made[0].requests["cached_cpu_tokens"][1] == 1536


@pytest.mark.parametrize("seed", range(3))
def test_retention_hints_keep_no_request_from_being_served(tmp_path, seed):
    draw = random.Random(seed)
    rows = []
    for n in range(40):
        session = draw.randrange(6)
        ids = [0, *range(100 * session + 1, 100 * session + 1 + draw.randint(1, 5))]
        hint = draw.choice([{}, CLOSE, DEMOTE, {"retention": draw.choice([0, 0.05, 1])}])
        rows.append((n * draw.choice([0, 0.01, 0.3]), f"s{session}", ids, hint))
    rows.sort(key=lambda row: row[0])
    run = run_of(tmp_path, rows)
    assert run.counters["retention.dropped_blocks"] > 0
    assert (run.requests["status"] == 0).all()


def test_pins_are_refused_with_the_version_that_dropped_them(tmp_path):
    with pytest.raises(KvsimError, match=r"is no hint; got \{\"pin\": 30\}.*pins were dropped in 0\.2"):
        run_of(tmp_path, [(0, "a", [0], {"retention": {"pin": 30}})])
    with pytest.raises(KvsimError, match=r"unknown key 'retention\.pin_s'; pins were dropped in 0\.2"):
        run_of(tmp_path, [(0, "a", [0], {"tool": "bash"})], section="retention: {pin_s: {bash: 4.0}}")


def test_a_closed_session_leaves_a_whole_prompt_that_another_one_has_used(tmp_path):
    """Nothing of b follows the block that both have, so nothing but its use keeps it."""
    rows = [(0, "a", [0, 1], {}), (2, "b", [0], {}), (4, "a", [0, 1], CLOSE), (6, "c", [0, 9], {})]
    assert found(run_of(tmp_path, rows))[3] == 1


def test_rows_without_a_session_are_each_of_their_own(tmp_path):
    rows = [(0, None, [0], {}), (2, None, [0, 1], CLOSE), (4, None, [0, 9], {})]
    assert found(run_of(tmp_path, rows)) == [0, 1, 1]


def test_what_is_nowhere_below_is_not_demoted(tmp_path):
    """Written back only when it is evicted, a prompt has no copy on the tier below."""
    rows = [(0, "a", [0, 1, 2], DEMOTE), (5, "a", [0, 1, 2, 3], {})]
    section = "retention: {}\nwrite: {policy: back}"
    lines = [
        {
            "timestamp": 1000 * at,
            "input_length": 512 * len(ids),
            "output_length": 2,
            "hash_ids": ids,
            **members,
        }
        for at, _, ids, members in rows
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tiers = "tiers: {gpu: {capacity: 64 blocks}, cpu: {capacity: 90 blocks}}"
    scenario = scenario_from_text(f"trace: {{path: t.jsonl}}\n{tiers}\n{section}", "s", tmp_path)
    run = execute(scenario, read_requests(scenario), RunOptions()).run
    assert run.requests["cached_gpu_tokens"].tolist() == [0, 1536]
    assert run.counters["retention.dropped_blocks"] == 0


def test_a_time_to_live_beyond_the_run_is_no_hint(tmp_path):
    draw = random.Random(4)
    rows = [(n / 3, f"s{n % 5}", [0, 10 * (n % 5) + 1, 100 + draw.randrange(9)], {}) for n in range(40)]
    small = "tiers: {gpu: {capacity: 16 blocks}}"
    hinted = run_of(tmp_path, [(*row[:3], {"retention": 10**6}) for row in rows], small)
    plain = run_of(tmp_path, rows, small, section="")
    assert (hinted.digest_results, hinted.digest_events) == (plain.digest_results, plain.digest_events)
    assert plain.counters["evictions.gpu"] > 0


def test_times_to_live_do_not_prolong_the_run(tmp_path):
    run = run_of(tmp_path, [(0, "a", [0, 1], {"retention": 32400})])
    assert run.end_ns < 10 * 10**9
