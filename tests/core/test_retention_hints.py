"""Hints of a trace's rows: what a closed session leaves, TTL by tool, copies that wait below."""

import json
import random
from collections import defaultdict
from itertools import accumulate
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.cache.store import NO_MOVE
from kvcache_sim.cache.tree_store import NO_COPY
from kvcache_sim.engine import HANDOVER, NO_MACHINE, Engine
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.kept_prompts import KeptPrompts
from kvcache_sim.serving.retention.hints import RetentionHints
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.members import CLOSE as CLOSED
from kvcache_sim.workload.members import DEMOTE as DEMOTED
from kvcache_sim.workload.trace import NOT_GIVEN
from support.examples import examples
from support.lookahead import by_the_clock


def run_of(tmp_path, rows, more="", section="retention: {}", again=True):
    """Return the run of (second, session, ids, further members); ``again``: in other orders of events too."""
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
    if not again:
        return execute(scenario, trace, RunOptions()).run
    made = by_the_clock(lambda: execute(scenario, trace, RunOptions(check="full")))
    assert len({run.summary["digest"]["results"] + run.summary["digest"]["events"] for run in made}) == 1
    return made[0].run


def found(run):
    """Return the leading blocks that each request found; of a whole prompt the last token is computed again."""
    return [-(-own // 512) for own in run.requests["cached_prefix_length_used"].tolist()]


class Sized:
    """Columns of a trace, and its length."""

    def __init__(self, columns, count):
        self.__dict__.update(vars(columns))
        self.count = count

    def __len__(self):
        return self.count


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
        st.tuples(st.sampled_from([0.5, 1.0, 2.5]), st.sampled_from([None, "a", "b"]), PATHS,
                  st.sampled_from([None, "close", 0.25, 1.25, 2.75])),
        min_size=1,
        max_size=14,
    ),
    st.integers(1, 2),
)  # fmt: skip
@example([(1.0, None, [False] * 2, hint) for hint in (None, "close", None)], 1)
def test_what_is_left_is_what_a_set_of_blocks_keeps(tmp_path_factory, drawn, machines):
    """Machines in turn, none of which ever evicts; requests end before the next ones come and expire in between."""
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
    more = f"cluster: {{machines: {machines}}}\nrouter: {{policy: round-robin}}"
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
        expected.append(next((k for k, block in enumerate(own) if block not in kept[machine]), len(own) - 1))
        kept[machine].update(own)
        for block in own:
            last[machine][block] = n
            users[machine][block].add(session or n)
        if hint == "close":
            alone = [k for k, block in enumerate(own) if users[machine][block] == {session or n}]
            dropped += drop(machine, own, alone[0]) if alone else 0
        elif hint is not None:
            expiries.append((run.requests["finish_ns"][n] / 1e9 + hint, n, machine))
    assert found(run) == expected
    assert run.counters.get("retention.dropped_blocks", 0) == dropped


@examples(80)
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(-1, 2), PATHS, st.sampled_from([NOT_GIVEN, CLOSED, DEMOTED]),
                  st.sampled_from([NOT_GIVEN, NOT_GIVEN, 0, 3, 9])),
        min_size=1,
        max_size=14,
    ),
    st.sampled_from((1, 4)),
)  # fmt: skip
def test_what_is_dropped_and_when(drawn, per_id):
    """Two machines in turn; a block of the trace has one or four of the cache, and three tiers that write moves."""
    ids = [
        [int("1" + "".join("01"[t] for t in path[: k + 1]), 2) for k in range(len(path))]
        for *_, path, _, _ in drawn
    ]
    engine, dropped, expected, demoted = Engine(0), [], [], []
    parts = [
        (2, [NO_MOVE, 7, NO_COPY]),
        (3, [NO_MOVE, NO_MOVE, NO_COPY]),
        (5, [NO_MOVE, NO_COPY, NO_COPY]),
        (8, [NO_MOVE] * 3),
    ]
    tree = SimpleNamespace(remove=lambda *asked: demoted.append((engine.now_ns, *asked)) or 3)
    kept = SimpleNamespace(
        block_size_tokens=512 // per_id, engine=engine, replicas=[SimpleNamespace(tiers=3), SimpleNamespace(tiers=1)],
        drop=lambda machine, request, first: dropped.append((engine.now_ns, machine, request, first)) or 2,
        left=lambda machine, request: (tree, parts[: 1 + request // 2 % 4]),
    )  # fmt: skip
    columns = {"session": 1, "retention": 3, "live_ns": 4}
    trace = SimpleNamespace(
        block_size=512, block_ids=np.array([b for own in ids for b in own]),
        id_offsets=np.array([0, *accumulate(map(len, ids))]), **{n: np.array([row[c] for row in drawn]) for n, c in columns.items()},
    )  # fmt: skip
    hints = RetentionHints(Sized(trace, len(drawn)), kept)
    users, last, expiries, marked = defaultdict(list), {}, [], []

    def drop(at, machine, request, holds):
        """Note the first of the blocks for which it holds, if there is one."""
        expected.extend([(at, machine, request, k * per_id) for k, own in enumerate(holds) if own][:1])

    def expire(until):
        while expiries and min(expiries)[0] <= until:
            at, request, machine = due = min(expiries)
            expiries.remove(due)
            drop(at, machine, request, [last[machine, name] == request for name in ids[request]])

    now = 0
    for request, (gap_ns, session, _, hint, live_ns) in enumerate(drawn):
        now, machine = now + gap_ns, request % 2
        expire(now)
        engine.schedule(now, HANDOVER, NO_MACHINE, lambda row: hints.closed(*row), (request, machine))
        engine.run(now)
        own = ("session", session) if session >= 0 else request
        for name in ids[request]:
            users[machine, name].append(own)
            last[machine, name] = request
        if hint == CLOSED:
            drop(now, machine, request, [{*users[machine, name]} == {own} for name in ids[request]])
        elif hint == DEMOTED and machine == 0:
            # blocks 2 to the last whose copy on the tier below is ready
            begin, end = {0: (2, 2), 1: (2, 3), 2: (5, 5), 3: (5, 8)}[request // 2 % 4]
            marked.extend([(now, request, (begin, end), 0)] * (begin < end))
        if live_ns != NOT_GIVEN:
            expiries.append((now + live_ns, request, machine))
    engine.run()
    expire(now - 1)  # after the last request nothing expires
    assert (dropped, demoted) == (expected, marked)
    assert hints.dropped_blocks == 2 * len(expected) + 3 * len(marked)
    assert engine.now_ns == now


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


@pytest.mark.parametrize(("keeps_answers", "blocks"), [(True, [2, 1]), (False, [2, 0])])
@pytest.mark.parametrize(("first", "last", "dropped"), [(0, 3, 3), (2, 3, 3), (3, 3, 0), (0, None, 0)])
def test_what_a_request_left_is_dropped_from_the_slowest_tier_up(keeps_answers, blocks, first, last, dropped):
    """Whole blocks of 16 tokens of a prompt, and of its answer where answers are kept."""
    calls = []

    class Tree:
        def copies(self, request, count):
            calls.append((request, int(count)))
            return [] if last is None else [(1, [0]), (last, [0, 0])]

        def remove(self, request, part, tier):
            calls.append((request, part, tier))
            return tier

    cache = SimpleNamespace(block_size_tokens=16, cache_output=keeps_answers)
    engine, caught_up = SimpleNamespace(now_ns=7), []
    replicas = [
        SimpleNamespace(engine=engine, cache=cache, tiers=3, catch_up=caught_up.append) for _ in range(2)
    ]
    trace = SimpleNamespace(kv_tokens=np.array([47, 31]), input_tokens=np.array([32, 15]))
    kept = KeptPrompts(replicas, [None, Tree()], trace)
    for request in (0, 1):
        assert kept.drop(1, request, first) == dropped
        gone = [(request, (first, last), tier) for tier in (2, 1, 0)] if dropped else []
        assert calls == [(request, blocks[request]), *gone]
        calls.clear()
    assert caught_up == [7, 7]
