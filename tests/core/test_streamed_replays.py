"""Replays of a long trace, read row by row: every figure is that of the same trace read whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.replay.cachesim import simulate_cache
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.replay.streamed import can_stream, replay_rows
from kvcache_sim.workload.readers import read as reading
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.readers.stream import RowStream
from kvcache_sim.workload.toolbox.write import mooncake_lines
from policy_variants import VARIANTS
from support.examples import examples
from support.small_traces import tree_traces

pytestmark = pytest.mark.usefixtures("no_whole_traces")

STREAMED = [variant for variant in VARIANTS if can_stream(variant)]


requests = st.fixed_dictionaries(
    {
        "block_size_tokens": st.sampled_from([1, 2, 4]),
        "capacity_blocks": st.integers(1, 60),
        "window": st.sampled_from([0, 0, 1, 3]),
        "outputs": st.sampled_from(["prompt", "computed", "all"]),
        "last_partial": st.sampled_from(["drop", "keep"]),
        "discipline": st.sampled_from(["prefix", "prefix", "flat"]),
        "touch_from": st.sampled_from(["tail", "tail", "root"]),
    }
)


def possible(asked, policy):
    """Return settings that have an effect on the policy."""
    if asked["last_partial"] == "keep":
        asked["outputs"] = "prompt"
    if asked["discipline"] == "prefix" and (policy != "lru" or asked["window"]):
        asked["touch_from"] = "tail"
    return asked


@examples(400)
@given(tree_traces(most_requests=40), st.sampled_from(STREAMED + ["lru"] * len(STREAMED)), requests)
def test_figures_are_those_of_the_whole_trace(tmp_path_factory, trace, policy, asked):
    path = tmp_path_factory.getbasetemp() / "t.jsonl"
    path.write_text("".join(mooncake_lines(trace)))
    settings = ReadSettings(block_size=trace.block_size)
    rows = reading.open_rows(path, settings)
    whole = reading.read_trace(path, settings=settings)
    assert isinstance(rows, RowStream)
    request = ReplayRequest(whole, **possible(asked, policy))
    (found,) = replay_rows(rows, [(request, policy)])
    del found["not_computed"]
    expected = simulate_cache(request, policy)
    assert found == {name: expected[name] for name in found}
    assert set(expected) - set(found) <= {"upper_bounds", "share_of_possible"}


LINE = '{"timestamp": 0, "input_length": 64, "output_length": 1, "hash_ids": %s}\n'


@pytest.fixture
def replayed(tmp_path, capsys):
    """Replay a file of prompts by their ids, and return what the command printed."""
    path = tmp_path / "t.jsonl"

    def printed(prompts, *options):
        path.write_text("".join(LINE % list(ids) for ids in prompts))
        assert run(["cachesim", str(path), "--trace-block-size=16", *options]) == 0
        return capsys.readouterr().out

    return printed


@pytest.mark.parametrize("partial", ["drop", "keep"])
def test_a_first_row_without_ids_has_blocks_of_its_own(replayed, partial):
    asked = ["--policy=sieve", f"--last-partial={partial}", "--capacity=6", "--format=json"]
    prompts = [(), (0, 1), (0, 1)]
    streamed, whole = (json.loads(replayed(prompts, *asked, *options)) for options in ([], ["--whole"]))
    for name in ("queried_blocks", "hit_blocks", "resident_blocks"):
        assert streamed[name] == whole[name]


@pytest.mark.parametrize("options", [[], ["--flat"], ["--whole"]])
def test_many_policies_and_capacities_are_single_replays(replayed, tmp_path, options):
    prompts = [range(7 * k, 7 * k + 2 + k % 3) for k in (1, 2, 3, 1, 2, 4, 1)]
    policies, sizes = ("lru", "s3fifo", "lfu"), ("4", "9")
    pairs = [(f"--policy={name}", f"--capacity={size}") for name in policies for size in sizes]
    single = [json.loads(replayed(prompts, *pair, "--format=json", *options)) for pair in pairs]
    asked = dict.fromkeys(option for pair in pairs for option in pair)
    assert json.loads(replayed(prompts, *asked, "--format=json", *options)) == single
    rows = [line.split()[:2] for line in replayed(prompts, *asked, *options).splitlines()]
    assert [row for row in rows if row and row[0] in policies] == [[n, s] for n in policies for s in sizes]
    assert run(["cachesim", str(tmp_path / "t.jsonl"), *asked, "--requests", str(tmp_path / "r.csv")]) == 2


def test_what_needs_the_whole_trace_is_left_out(replayed):
    asked = ["--capacity=9", "--format=json"]
    prompts = [(0, 1, 2, 3), (0, 1, 4, 5), (0, 1, 4, 5)]
    streamed, whole = (json.loads(replayed(prompts, *asked, *options)) for options in ([], ["--whole"]))
    assert {"misses", "upper_bounds"} <= set(whole)
    assert streamed.pop("not_computed")
    assert streamed.items() <= whole.items()
    assert "upper_bounds" in json.loads(replayed(prompts, *asked, "--policy=belady"))


def test_a_trace_that_is_no_tree_is_read_whole(replayed):
    prompts = [(0, 1, 2, 3), (5, 1, 2, 3)]
    assert "upper_bounds" in json.loads(replayed(prompts, "--capacity=9", "--format=json"))


@pytest.mark.parametrize("policy", ["wtinylfu", "belady", "vllm"])
def test_a_policy_that_needs_the_whole_trace_replays_no_rows(policy):
    assert not can_stream(policy)


def weka_line(name, rows):
    """Return a session in blocks of 8 tokens; a row is its path, its hash ranges and its ids."""
    written = [
        {"t": k, "path": path, "in": 8 * ids + 3, "out": 5, "hash": text} for k, (path, text, ids) in rows
    ]
    agent = {"type": "subagent", "t": 1, "path": "", "meta": {"agent_id": "a", "t": 1}}
    return json.dumps({"session": name, "block_size": 8, "rows": [written[0], agent, *written[1:]]}) + "\n"


def test_weka_sessions_are_replayed_row_by_row(tmp_path, capsys):
    """Turns that grow, return to an earlier one and leave gaps in their ids, and a sub-agent between them."""
    turns = [("", "1-5", 5), ("a", "9-12", 4), ("", "1-7", 7), ("a", "9-14", 6), ("", "1-3,20-29", 13)]
    path = tmp_path / "t.jsonl"
    sessions = [weka_line(f"s{k}", enumerate(turns[: 1 + k % 5])) for k in range(1, 40)]
    path.write_text("".join(sessions))
    settings = ReadSettings()
    whole = reading.read_trace(path, settings=settings)
    for policy in ("lru", "lfu", "s3fifo"):
        for asked in ({}, {"discipline": "flat"}, {"window": 2}):
            rows = reading.open_rows(path, settings)
            assert isinstance(rows, RowStream)
            assert rows.block_size == whole.block_size == 8
            request = ReplayRequest(whole, whole.block_size, 20, **asked)
            (found,) = replay_rows(rows, [(request, policy)])
            del found["not_computed"]
            expected = simulate_cache(request, policy)
            assert found == {name: expected[name] for name in found}
            assert found.get("hit_blocks", 1)
    assert run(["curve", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["queried_blocks"] == len(whole.block_ids)
    path.write_text("".join(sessions) + weka_line("unnamed", enumerate([("", "", 0)])))
    assert run(["cachesim", str(path), "--capacity", "20", "--format", "json"]) == 0
    assert "upper_bounds" in json.loads(capsys.readouterr().out)
