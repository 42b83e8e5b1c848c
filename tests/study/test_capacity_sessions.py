"""Sessions as load: how many at a time hold the limits, against closed forms and a search by hand."""

import json
import random
from itertools import pairwise

import kvcache_sim as kv
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run
from kvcache_sim.extras.study.sizing.search import sessions_of

#: A step takes 10 ms; prompts of one block are computed one by one.
SERVER = {
    "cache": {"enabled": False, "block_size": 64},
    "replica": {"max_num_seqs": 1, "step_time": "linear:base=10ms,token=0ms"},
    "tiers": {"gpu": "1000 blocks"},
}
HELD = [
    "--set",
    "cache.block_size=64",
    "--set",
    "cache.enabled=false",
    "--set",
    "tiers.gpu.capacity=1000 blocks",
]
HELD += ["--set", "replica.max_num_seqs=1", "--set", "replica.step_time=linear:base=10ms,token=0ms"]


def write(folder, sessions, turns, think_ms=0):
    """Write sessions that all begin at 0, each turn its think time after the answer; return the path."""
    rows = []
    for k in range(sessions):
        for n in range(turns):
            when = {"timestamp": 0} if n == 0 else {"delay": think_ms}
            ids = {"input_length": 64, "hash_ids": [k * turns + n], "output_length": 1}
            rows.append({"session_id": f"s{k}", "turn": n, **when, **ids})
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_steps_are_single_sessions_and_then_two_per_cent():
    counts = [int(sessions_of(step)) for step in range(400)]
    assert counts[:52] == [*range(1, 53)]
    assert all(a < b <= max(a + 1, 1.04 * a) for a, b in pairwise(counts))


@pytest.mark.parametrize("limit_ms", [55, 120])
def test_a_server_of_requests_one_by_one_holds_as_many_as_wait_within_the_limit(tmp_path, limit_ms):
    """N sessions without think time: each request waits for the N − 1 others, 10 ms each."""
    path = write(tmp_path, 60, 5)
    found = kv.capacity(path, SERVER, slo={"ttft": f"{limit_ms}ms"}, attain="100%", sessions=True)
    (row,) = found.rows
    assert (found.sessions, row["capacity.verdict"]) == (limit_ms // 10, "found")
    assert row["capacity.below.sessions"] < found.sessions < row["capacity.above.sessions"]
    assert row["capacity.rate_per_s"] == pytest.approx(100, rel=0.05)  # the server is always busy
    assert found.rate_per_s is None
    assert f"{limit_ms // 10} sessions" in str(found)


def agents(folder, seed):
    """Write 40 agents of the Weka form with sub-agents, prompts that grow, and seconds between turns."""
    draw, lines = random.Random(seed), []

    def turns(first, at, count):
        made, ids = [], [first + k for k in range(draw.randint(2, 30))]
        for _ in range(count):
            made.append(
                {
                    "t": at,
                    "type": "n",
                    "in": 64 * len(ids),
                    "out": draw.randint(5, 90),
                    "hash_ids": [*ids],
                    "api_time": 1,
                }
            )
            ids += [ids[-1] + k + 1 for k in range(draw.randint(1, 8))]
            at += 1 + draw.randint(0, 9)
        return made

    for k in range(40):
        own = turns(0, 0.0, draw.randint(2, 12))
        if draw.random() < 0.4:
            at = own[-2]["t"] + 0.5
            inner = turns(5000, at, draw.randint(1, 4))
            own.insert(
                -1, {"t": at, "type": "subagent", "agent_id": "a", "duration_ms": 4000, "requests": inner}
            )
        lines.append({"id": f"agent-{k}", "block_size": 64, "hash_id_scope": "local", "requests": own})
    path = folder / "agents.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_sessions_of_agents_are_those_of_a_search_by_hand(tmp_path, seed):
    path = agents(tmp_path, seed)
    settings = {
        "cache": {"block_size": 64},
        "replica": {"max_num_seqs": 4},
        "tiers": {"gpu": "400 blocks"},
        "measure": {"warmup": "10%"},
        "slo": {"ttft": "150ms"},
    }
    found = kv.capacity(path, settings, attain="95%", sessions=True)
    shares = {
        n: kv.simulate(path, settings, workload={"concurrency": n}).summary["slo"]["attainment"]
        for n in range(1, 41)
    }
    holds = max(n for n in shares if all(shares[k] >= 0.95 for k in range(1, n + 1)))
    assert found.sessions == pytest.approx(holds, rel=0.05)
    (row,) = found.rows
    assert row["capacity.attainment"] == shares[found.sessions]


def test_entries_and_plays_hold_in_the_search_too(tmp_path):
    path = write(tmp_path, 10, 4, think_ms=100)
    settings = {
        **SERVER,
        "slo": {"ttft": "55ms"},
        "workload": {"concurrency": 1, "plays": 30, "enter": [0.2, 0.8]},
    }
    (row,) = kv.capacity(path, settings, attain="90%", sessions=True).rows
    again = {**settings, "measure": {"warmup": "10%"}}
    again["workload"] = {**settings["workload"], "concurrency": row["capacity.sessions"]}
    assert kv.simulate(path, again).summary["slo"]["attainment"] == row["capacity.attainment"] >= 0.9
    with pytest.raises(UsageError, match="is what --sessions searches"):
        kv.capacity(path, settings, sessions=True, grid={"workload.concurrency": [1, 2]})


def test_a_rate_is_not_searched_where_sessions_begin_at_once(tmp_path, capsys):
    path = write(tmp_path, 20, 3)
    output = ["-q", "-j", "1", "-o"]
    assert run(["capacity", path, "--slo", "ttft=1s", *HELD, *output, str(tmp_path / "a")]) != 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "20 sessions that begin at once" in shown
    assert "--sessions finds how many sessions are held" in shown
    assert (
        run(["capacity", path, "--slo", "ttft=9ms", *HELD, "--sessions", *output, str(tmp_path / "b")]) == 4
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert "no number of sessions attains 99 %: at 1 session, the lowest tried" in shown
    assert run(["capacity", path, "--slo", "ttft=9s", *HELD, "--sessions", *output, str(tmp_path / "c")]) == 0
    assert (
        "every number of sessions tried attains 99 %, up to 199 sessions: raise workload.plays"
        in " ".join(capsys.readouterr().out.split())
    )


def test_the_cheapest_design_for_a_number_of_sessions(tmp_path, capsys):
    """Each machine holds 5 sessions of requests one by one, so 12 need three."""
    path = write(tmp_path, 60, 5)
    options = ["--attain", "100%", "--sessions", "--need", "12", "--set", "router.policy=least-loaded"]
    grid = ["--grid", "cluster.machines=2,6", "-q", "-j", "1", "-o", str(tmp_path / "out")]
    assert run(["capacity", path, "--slo", "ttft=55ms", *HELD, *options, *grid]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "smallest number that holds 12 sessions: 3 machines (2 hold 10 sessions" in shown
    assert run(["capacity", path, "--slo", "ttft=55ms", *HELD, *options, *grid, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["settings"]["cluster.machines"], row["sessions"]) for row in found["candidates"]][:2] == [
        (2, 10),
        (6, 30),
    ]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--need", "3/s"], "not a number of sessions"),
        (["--max-rate", "3/s"], "rates are not searched"),
        (["--set", "workload.plays=0"], "workload.plays"),
    ],
)
def test_questions_that_cannot_be_meant_are_refused_in_one_line(tmp_path, capsys, more, words):
    path = write(tmp_path, 3, 2)
    assert run(["capacity", path, "--slo", "ttft=1s", "--sessions", *HELD, *more, "-q"]) == 2
    assert words in capsys.readouterr().err


def test_users_of_a_generated_workload_are_searched_too():
    workload = {
        "kind": "conversational",
        "requests": 300,
        "loop": "closed",
        "arrivals": {"rate_per_s": 50.0, "process": "poisson"},
    }
    found = kv.capacity(workload, SERVER, slo={"ttft": "400ms"}, sessions=True, cache={"block_size": 512})
    (row,) = found.rows
    assert row["capacity.verdict"] == "found"
    assert 1 <= found.sessions < 300
    open_loop = {**workload, "loop": "open"}
    with pytest.raises(UsageError, match=r"open loop"):
        kv.capacity(open_loop, SERVER, slo={"ttft": "400ms"}, sessions=True, cache={"block_size": 512})
