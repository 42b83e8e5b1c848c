"""Hints of a trace's rows: what a closed session leaves, TTL by tool, copies that wait below."""

import json
import random
from collections import defaultdict
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.examples import examples
from support.lookahead import by_the_clock


def run_of(tmp_path, rows, more="", section="retention: {}", again=True):
    """Return the run of (second, session, ids, further members); ``again``: in other orders of events too."""
    lines = []
    for n, (at, session, ids, members) in enumerate(rows):
        line = {
            "timestamp": round(1000 * at),
            "input_length": 512 * len(ids),
            "output_length": 2,
            "hash_ids": ids,
        }
        if session is not None:
            line |= {"session_id": session, "turn": sum(row[1] == session for row in rows[:n])}
        lines.append(line | members)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tiers = more if "tiers:" in more else f"tiers: {{gpu: {{capacity: 64 blocks}}}}\n{more}"
    text = f"trace: {{path: t.jsonl}}\n{section}\n{tiers}"
    scenario = scenario_from_text(text, "s", tmp_path)
    trace = read_requests(scenario)
    if not again:
        return execute(scenario, trace, RunOptions()).run
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
    rows = [(0, "a", [0, 1], {"retention": 3}), (gap_s, "a", [0, 1, 2], {}), (20, "a", [0, 1, 2, 5], {})]
    run = run_of(tmp_path, rows)
    ended_s = run.requests["finish_ns"][0] / 1e9
    survives = rows[1][0] < ended_s + 3
    # used again in time, the blocks stay when the three seconds are over
    assert found(run) == ([0, 2, 3] if survives else [0, 0, 3])
    assert survives == (gap_s < 3)


def test_a_turn_leaves_no_block_that_only_the_next_turn_names(tmp_path):
    rows = [(1, "b", [3, 7], {}), (1.5, "a", [3], {"retention": 0.25}), (2, "a", [3, 7], {})]
    run = run_of(tmp_path, rows)
    assert found(run) == [0, 0, 1], "b's second block stands, and keeps the first one"
    assert run.counters["retention.dropped_blocks"] == 0


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


@pytest.mark.parametrize(
    ("write", "gpu", "cpu"), [("through", [0, 0], [0, 1536]), ("back", [0, 1536], [0, 0])]
)
def test_what_has_a_copy_below_is_demoted(tmp_path, write, gpu, cpu):
    """Written back only when it is evicted, a prompt has no copy on the tier below."""
    rows = [(0, None, [0, 1, 2], DEMOTE | {"output_length": 400}), (5, None, [0, 1, 2, 3], {})]
    tiers = "tiers: {gpu: {capacity: 64 blocks}, cpu: {capacity: 90 blocks}}"
    run = run_of(tmp_path, rows, f"{tiers}\nwrite: {{policy: {write}}}")
    assert run.requests["cached_gpu_tokens"].tolist() == gpu
    assert run.requests["cached_cpu_tokens"].tolist() == cpu
    assert (run.counters["retention.dropped_blocks"] == 0) is (write == "back")


#: A prompt as the turns that it takes from the root of a binary tree; each of its blocks is named by its path.
PATHS = st.lists(st.booleans(), min_size=1, max_size=4)


@examples(30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.5, 1.0, 2.5]),
            st.sampled_from([None, "a", "b"]),
            PATHS,
            st.sampled_from([None, "close", 0.25, 1.25, 2.75]),
        ),
        min_size=1,
        max_size=14,
    ),
    st.integers(1, 2),
    st.sampled_from([1, 4]),
)
@example([(1.0, None, [False] * 2, hint) for hint in (None, "close", None)], 1, 1)
@example([(1.0, name, [False] * 2, None) for name in "aba"] + [(1.0, "a", [False], "close")], 1, 4)
def test_what_is_left_is_what_a_set_of_blocks_keeps(tmp_path_factory, drawn, machines, per_id):
    """Machines in turn, none of which ever evicts; requests end before the next ones come and expire in between.

    A block of the trace has one or four of the cache.
    """
    drawn = [*drawn, (1.0, "b", [False], "close")]
    ids = [
        [int("1" + "".join("01"[turn] for turn in path[: k + 1]), 2) for k in range(len(path))]
        for *_, path, _ in drawn
    ]
    times = list(accumulate(gap_s for gap_s, *_ in drawn))
    rows = [
        (at, session, own, {} if hint is None else {"retention": hint})
        for at, (_, session, _, hint), own in zip(times, drawn, ids, strict=True)
    ]
    more = (
        f"cluster: {{machines: {machines}}}\nrouter: {{policy: round-robin}}\n"
        f"cache: {{block_size: {512 // per_id}}}\ntiers: {{gpu: {{capacity: 300 blocks}}}}"
    )
    run = run_of(tmp_path_factory.mktemp("t"), rows, more, again=False)
    kept, last = [set() for _ in range(machines)], [{} for _ in range(machines)]
    users, expiries = [defaultdict(set) for _ in range(machines)], []
    expected, dropped = [], 0

    def drop(machine: int, prompt: list[int], first: int) -> int:
        before = len(kept[machine])
        for block in reversed(prompt[first:]):
            if not kept[machine] & {2 * block, 2 * block + 1}:  # no kept block follows it
                kept[machine].discard(block)
        return before - len(kept[machine])

    for n, (at, session, own, members) in enumerate(rows):
        while expiries and min(expiries)[0] < at:
            _, request, machine = expiry = min(expiries)
            expiries.remove(expiry)
            unused = [k for k, block in enumerate(ids[request]) if last[machine][block] == request]
            dropped += drop(machine, ids[request], unused[0]) if unused else 0
        machine, hint = n % machines, members.get("retention")
        there = next((k for k, block in enumerate(own) if block not in kept[machine]), len(own))
        expected.append(min(per_id * there, per_id * len(own) - 1))  # one token at least is computed
        kept[machine].update(own)
        for block in own:
            last[machine][block] = n
            users[machine][block].add(session or n)
        if hint == "close":
            alone = [k for k, block in enumerate(own) if users[machine][block] == {session or n}]
            dropped += drop(machine, own, alone[0]) if alone else 0
        elif hint is not None:
            expiries.append((run.requests["finish_ns"][n] / 1e9 + hint, n, machine))
    blocks = [-(-tokens * per_id // 512) for tokens in run.requests["cached_prefix_length_used"].tolist()]
    assert blocks == expected
    assert run.counters.get("retention.dropped_blocks", 0) == per_id * dropped


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
