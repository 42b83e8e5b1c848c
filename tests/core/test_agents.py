"""Agents: requests that wait for several others, tool calls between them, and the order of jobs."""

import json
import os
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cache.settings import CacheSettings
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.serving.waiting_requests import OneByOne, WaitingRequests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.readers.read import read_trace
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.sessions import job_starts_ns, jobs_of
from support.agreement import agree
from support.examples import examples
from support.product.scenarios import preset_path
from support.product.traces import merge, select_rows
from support.small_traces import trace_of

#: A step takes 1 ms, 1 us a token and 2 us more for one that is decoded.
CLOCK = "linear:base=1ms,token=1us,decode=2us"
MS = 10**6


def run(tmp_path, rows, *, max_num_seqs=8, machines=1, order="fcfs"):
    path = tmp_path / "agents.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = (
        f"trace: {{path: {path}, block_size: 64, format: dynamo-agentic}}\ncluster: {{machines: {machines}}}\n"
        "cache: {block_size: 64}\ntiers: {gpu: {capacity: 2000 blocks}}\n"
        f"replica: {{step_time: '{CLOCK}', max_num_seqs: {max_num_seqs}, queue_order: {order}}}\n"
    )
    scenario = scenario_from_text(text, "s", tmp_path)
    return execute(scenario, read_requests(scenario), RunOptions())


def row(name, tokens, output, ids, **members):
    return {"request_id": name, "input_length": tokens, "output_length": output, "hash_ids": ids, **members}


def random_graph(draw: random.Random) -> list[dict]:
    """Return rows in any order of file: each may wait for some of those drawn before it."""
    rows: list[dict] = []
    for n in range(draw.randint(2, 25)):
        tokens, session = draw.randint(64, 400), draw.randrange(6)
        ids = [100 * session + k for k in range(-(-tokens // 64))]
        waits = sorted({draw.randrange(n) for _ in range(draw.randint(0, 3))}) if n else []
        when = {"timestamp": draw.randint(0, 30)}
        if waits:
            delays = {"delay": draw.randint(0, 3), "tool_wait_ms": draw.choice([0, 0.5, 9])}
            when = {"wait_for": [f"r{k}" for k in waits], **delays}
        rows.append(row(f"r{n}", tokens, draw.randint(1, 5), ids, session_id=f"s{session}", **when))
    draw.shuffle(rows)
    return rows


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVSIM_EXAMPLES", "15"))))
def test_a_request_arrives_after_all_it_waits_for_and_its_tools(tmp_path, seed):
    draw = random.Random(seed)
    rows = random_graph(draw)
    options = {"max_num_seqs": draw.choice([1, 2, 8]), "machines": draw.choice([1, 2])}
    options["order"] = draw.choice(["fcfs", "program-fcfs"])
    made = run(tmp_path, rows, **options)
    found, number = made.run.requests, {r["request_id"]: k for k, r in enumerate(rows)}
    assert made.summary["requests"]["finished"] == len(rows)
    for k, one in enumerate(rows):
        waits = [int(found["finish_ns"][number[name]]) for name in one.get("wait_for", [])]
        after = round((one.get("delay", 0) + one.get("tool_wait_ms", 0)) * MS)
        assert found["arrival_ns"][k] == (max(waits) + after if waits else one["timestamp"] * MS)
    agreed = agree(made.scenario.settings, made.trace)
    assert agreed.digest_events == made.run.digest_events
    # jobs against a search of all that are bound to each other
    bound = {k: {k} for k in range(len(rows))}
    for k, one in enumerate(rows):
        same = [j for j, other in enumerate(rows) if other["session_id"] == one["session_id"]]
        for j in [*same, *(number[name] for name in one.get("wait_for", []))]:
            together = bound[k] | bound[j]
            for each in together:
                bound[each] = together
    if any("wait_for" in one for one in rows):
        jobs = jobs_of(made.trace)
        assert all((jobs[i] == jobs[j]) == (j in bound[i]) for i in bound for j in bound)
        times_ms = []
        for job in {tuple(sorted(together)) for together in bound.values()}:
            opens = [rows[j]["timestamp"] * MS for j in job if "wait_for" not in rows[j]]
            assert set(job_starts_ns(made.trace, jobs)[[*job]]) == {min(opens)}
            times_ms.append((found["finish_ns"][[*job]].max() - found["arrival_ns"][[*job]].min()) / MS)
        reported = made.summary["jobs"]
        assert (reported["count"], reported["completed"]) == (len(times_ms), len(times_ms))
        assert reported["completion"]["max"] == pytest.approx(max(times_ms))
        assert reported["completion"]["min"] == pytest.approx(min(times_ms))


def test_waits_go_along_when_rows_are_chosen_and_traces_joined(tmp_path):
    rows = [row(f"r{k}", 64, 1, [k], session_id="s", timestamp=k) for k in range(3)]
    rows.append(row("last", 64, 1, [9], wait_for=["r0", "r1", "r2"]))
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    trace = read_trace(path, settings=ReadSettings(block_size=64))
    assert trace.after.tolist() == [-1, -1, -1, 0]
    assert trace.also_after.tolist() == [[3, 1], [3, 2]]
    chosen = select_rows(trace, np.array([1, 3, 2]))
    assert chosen.also_after.tolist() == [[1, 0], [1, 2]]
    both = merge([trace, trace])
    # rows of one arrival in the order of the traces, waiting ones at 0: a0 a3 b0 b3 a1 b1 a2 b2
    assert sorted(both.also_after.tolist()) == [[1, 4], [1, 6], [3, 5], [3, 7]]


def test_agents_have_the_published_shape():
    """AgentX as vLLM and Mooncake report it: median prompt 142 k, 43 turns, sub-agents in 44 %, 94-96 % said before."""
    text = preset_path("agentx").read_text()
    scenario = scenario_from_text(text, "s", preset_path("agentx").parent, ("workload.requests=3000",))
    trace = read_requests(scenario)
    jobs = jobs_of(trace)
    sizes = np.bincount(jobs)
    sessions = np.array([len(set(trace.session[jobs == job].tolist())) for job in range(len(sizes))])
    assert np.median(trace.input_tokens) == pytest.approx(142_000, rel=0.1)
    assert np.median(sizes) == pytest.approx(43, rel=0.1)
    assert (sessions > 1).mean() == pytest.approx(0.44, abs=0.07)
    said_before = 1 - trace.distinct_ids * trace.block_size / trace.input_tokens.sum()
    assert 0.94 <= said_before <= 0.965


@st.composite
def awaited(draw):
    """Requests of two sessions, each released by the previous turn or another request, and by further ones."""
    n = draw(st.integers(1, 10))
    sessions = draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n))
    closed = draw(st.lists(st.sampled_from((-1, 0, 5)), min_size=n, max_size=n))
    after = [draw(st.sampled_from((-1, *range(k)))) for k in range(n)]
    also = [(k, other) for k in range(n) for other in range(k) if draw(st.integers(0, 3)) == 0]
    return sessions, closed, after, also


@examples(80)
@given(awaited(), st.booleans(), st.randoms(use_true_random=False))
def test_a_request_comes_once_all_that_it_waits_for_have_finished(case, in_order, random):
    sessions, closed, after, also = case
    n, turns, previous, last = len(sessions), [], [], {}
    for k, session in enumerate(sessions):
        previous.append(last.get(session, -1) if session >= 0 else -1)
        turns.append(turns[previous[k]] + 1 if previous[k] >= 0 else 0)
        last[session] = k
    first = [-1 if closed[k] < 0 else after[k] if after[k] >= 0 else previous[k] for k in range(n)]
    # further requests are awaited together with a first one alone
    also = [(k, other) for k, other in also if first[k] not in (-1, other)]
    trace = replace(
        trace_of([[k] for k in range(n)]),
        session=np.array(sessions, np.int32),
        turn=np.array(turns, np.int32),
        think_ns=np.array(closed, np.int64),
        after=np.array(after, np.int32),
        also_after=np.array(also, np.int32).reshape(-1, 2),
    )
    waits_for = {
        k: set() if in_order else {first[k], *(b for a, b in also if a == k)} - {-1} for k in range(n)
    }
    waiting = WaitingRequests(trace, in_order)
    come = waiting.alone.tolist()
    assert come == [k for k in range(n) if not waits_for[k]]
    assert bool(waiting) == (len(come) < n)
    done, open_requests = set(), list(come)
    while open_requests:
        request = open_requests.pop(random.randrange(len(open_requests)))
        done.add(request)
        released = list(waiting.pop_followers(request))
        assert sorted(released) == [k for k in range(n) if request in waits_for[k] and waits_for[k] <= done]
        come += released
        open_requests += released
    assert sorted(come) == list(range(n))


class MachineThatMoves:
    """A machine of an instant run with open moves, some of which its last event began after the others had ended."""

    def __init__(self, open_moves):
        self.cache = CacheSettings(lower_semantics="hicache")
        self.core, self.open_moves, self.is_drained = self, open_moves, False

    def after_each_event(self, notify):
        self.event_ended = lambda: notify(self)

    def take_drained(self):
        return self.is_drained


@pytest.mark.parametrize("moves", [[0, 0], [2, 0], [1, 1]])
def test_the_next_request_of_an_instant_run_waits_for_the_moves_of_engines_tiers(moves):
    queued, (first, second) = [], map(MachineThatMoves, moves)
    gate = OneByOne([first, second], lambda: queued.append(1))
    first.event_ended()
    assert not queued, "no request has left"
    gate.closed()
    gate.check()
    assert len(queued) == (not any(moves))
    first.is_drained = True
    first.event_ended()
    assert len(queued) == (not moves[1])
    second.open_moves, first.is_drained = 0, False
    second.event_ended()
    assert len(queued) == (not moves[0] or not moves[1])
