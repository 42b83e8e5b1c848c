"""Generated files come back as they were made; the WEKA sessions give their published figure."""

import gzip
import json

import numpy as np
import pytest
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import simulate
from kvcache_sim.workload.generate import KINDS
from kvcache_sim.workload.readers import ReadSettings, read_trace
from kvcache_sim.workload.sessions import predecessors
from support.product.traces import build, settings_of, upper_bound_hit_tokens, write_jsonl
from support.shared_files import ROOT, shared


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [{}, {"loop": "closed"}, {"loop": "closed", "concurrency": 3}])
def test_a_written_workload_reads_back_as_itself(kind, more, tmp_path):
    mapping = {"requests": 1500, "block_size": 64, **more}
    path = tmp_path / "w.jsonl"
    with open(path, "w") as file:
        write_jsonl(settings_of(kind, mapping), 9, file)
    read = read_trace(path, settings=ReadSettings(block_size=64))
    made = build(kind, mapping, 9)
    opens = made.think_ns < 0
    assert np.array_equal(read.arrival_ns[opens], made.arrival_ns[opens])
    for column in """
        input_tokens output_tokens id_offsets block_ids think_ns session turn is_conversational_turn
    """.split():
        assert np.array_equal(getattr(read, column), getattr(made, column)), column
    assert read.session_names == made.session_names
    assert np.array_equal(predecessors(read), predecessors(made))
    if len(read.history_tokens):
        assert np.array_equal(read.history_tokens, made.history_tokens)
    else:
        assert not (made.turn > 0).any()


def weka_recount(path):
    """Return (blocks, hit blocks) of the file's sessions, from the text of the file alone."""
    blocks = hits = 0
    with gzip.open(path) as file:
        lines = file.readlines()
    for line in lines:
        seen = np.zeros(1 << 17, np.bool_)
        for row in json.loads(line)["rows"]:
            ranges = [part.split("-") for part in row.get("hash", "").split(",") if part]
            if not ranges:
                continue
            ids = np.concatenate([np.arange(int(r[0]), int(r[-1]) + 1) for r in ranges])
            blocks += len(ids)
            known = seen[ids]
            hits += len(ids) if known.all() else int(known.argmin())
            seen[ids] = True
    return blocks, hits


def test_weka_sessions_hit_the_blocks_their_text_says():
    path = shared("traces/weka_agentic_dev.jsonl.gz")
    blocks, hits = weka_recount(path)
    assert (blocks, hits) == (52_950_005, 50_962_289)
    trace = read_trace(path)
    assert int((trace.input_tokens // 64).sum()) == blocks
    assert int(upper_bound_hit_tokens(trace, cache_output=False).sum()) == 64 * hits
    assert hits / blocks == pytest.approx(0.9626, abs=0.001)


def test_weka_sub_agents_wait_for_the_turn_that_sent_them_out():
    trace = read_trace(shared("traces/weka_agentic_dev.jsonl.gz"))
    waits_for = predecessors(trace)
    forks = [i for i in np.flatnonzero(trace.turn == 0) if "/" in trace.session_names[trace.session[i]]]
    assert len(forks) == 54
    for i in forks:
        parent = trace.session_names[trace.session[i]].rsplit("/", 1)[0]
        assert trace.session_names[trace.session[waits_for[i]]] == parent
        assert trace.think_ns[i] >= 0


def test_weka_closed_loop_hits_nearly_what_instant_replay_does():
    scenario = scenario_from_text(
        f"""
        trace: {{path: {shared("traces/weka_agentic_dev.jsonl.gz")}}}
        cache: {{block_size: 64, cache_output: false}}
        tiers: {{gpu: {{capacity: unbounded}}}}
        replica: {{max_model_len: 1000000, allow_long_max_model_len: true}}
        """,
        "weka",
        ROOT,
    )
    trace = read_requests(scenario)
    run = simulate(scenario.settings, trace)
    assert (run.requests["status"] == 0).all(), "the length holds prompts of up to 894,371 tokens"
    hits = int(run.requests["cached_prefix_length_used"].sum()) // 64
    # Sub-agents run in parallel with their parents here: a block may be looked up before it was computed.
    assert hits / 52_950_005 == pytest.approx(50_962_289 / 52_950_005, abs=1e-4)
    waits_for = predecessors(trace)
    later = np.flatnonzero(waits_for >= 0)
    arrival, finish = run.requests["arrival_ns"], run.requests["finish_ns"]
    assert np.array_equal(arrival[later], finish[waits_for[later]] + trace.think_ns[later])
    instant = scenario_from_text(
        f"""
        trace: {{path: {shared("traces/weka_agentic_dev.jsonl.gz")}}}
        cache: {{block_size: 64, cache_output: false}}
        tiers: {{gpu: {{capacity: unbounded}}}}
        replica: {{instant: true}}
        """,
        "weka",
        ROOT,
    )
    run = simulate(instant.settings, read_requests(instant))
    assert int(run.requests["cached_prefix_length_used"].sum()) == 64 * 50_962_289
