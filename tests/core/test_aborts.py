"""Requests aborted by their clients: they leave, their blocks are freed, and other requests are
unaffected."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.readers import ReadSettings, read_trace
from kvcache_sim.workload.toolbox.write import mooncake_lines
from support.examples import examples

ABORTED = 2
CHECKED = RunOptions(check="full")
SETTINGS = {
    "own": ["tiers.gpu.capacity=64 blocks"],
    "tiers": ["tiers.gpu.capacity=48 blocks", "tiers.cpu.capacity=96 blocks"],
    "read buffers": [
        "tiers.gpu.capacity=48 blocks",
        "tiers.cpu.capacity=96 blocks",
        "fetch.read_buffer_layers=1",
        "channels.up={bandwidth: 1GB/s, edges: [cpu->gpu]}",
        "channels.down={bandwidth: 20GB/s, edges: [gpu->cpu]}",
    ],
    "asynchronous": ["tiers.gpu.capacity=64 blocks", "replica.async_scheduling=length"],
    "vllm": ["tiers.gpu.capacity=64 blocks", "cache.semantics=vllm", "replica.scheduler=vllm"],
    "vllm lookahead": [
        "tiers.gpu.capacity=64 blocks",
        "cache.semantics=vllm",
        "replica.scheduler=vllm",
        "replica.async_scheduling=stop-token",
    ],
    "sglang": [
        "tiers.gpu.capacity=64 blocks",
        "replica.scheduler=sglang",
        "replica.max_num_batched_tokens=64",
    ],
    "sglang lookahead": [
        "tiers.gpu.capacity=64 blocks",
        "replica.scheduler=sglang",
        "replica.async_scheduling=length",
        "replica.max_num_batched_tokens=64",
        "replica.enable_mixed_chunk=true",
    ],
}
COMMON = ["cache.block_size=16", "replica.step_time=h100-llama-3.1-8b-tp1", "replica.max_num_seqs=4"]


def written(tmp_path, rows):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_trace(path, settings=ReadSettings(block_size=16))


def row(ms, prompt, output, ids, **more):
    return {"timestamp": ms, "input_length": prompt, "output_length": output, "hash_ids": ids, **more}


def run(trace, name="own", options=CHECKED):
    scenario = load_scenario(None, [*COMMON, *SETTINGS[name], "trace.path=unused", "trace.block_size=16"])
    return simulate(scenario.settings, trace, None, options)


@pytest.mark.parametrize("name", SETTINGS)
@examples(15)
@given(data=st.data())
def test_whatever_is_given_up_everything_is_free_and_accounted_for(tmp_path_factory, name, data):
    rows, time = [], 0
    for n in range(data.draw(st.integers(1, 12))):
        time += data.draw(st.integers(0, 60))
        blocks = data.draw(st.integers(1, 12))
        shared = data.draw(st.integers(0, blocks))
        ids = [*range(shared), *(1000 * (n + 1) + block for block in range(shared, blocks))]
        aborted = {"abort_after": data.draw(st.integers(0, 400)) / 2} if data.draw(st.booleans()) else {}
        rows.append(row(time, blocks * 16, data.draw(st.integers(1, 80)), ids, **aborted))
    trace = written(tmp_path_factory.mktemp("aborts"), rows)
    found = run(trace, name)  # ends with the checks that nothing is held and every request is closed
    status = np.asarray(found.requests["status"])
    for n, own in enumerate(rows):
        arrived, finish = found.requests["arrival_ns"][n], found.requests["finish_ns"][n]
        if status[n] == ABORTED:
            assert "abort_after" in own
            assert finish == -1
        elif "abort_after" in own:  # it was done within the step in which it was given up
            assert finish - arrived <= own["abort_after"] * 1e6 + 60_000_000
    assert found.requests["request"].tolist() == list(range(len(rows)))


@pytest.mark.parametrize("name", SETTINGS)
def test_who_never_got_in_leaves_no_trace_in_the_others(tmp_path, name):
    busy = [row(0, 160, 60, [*range(100 * n, 100 * n + 10)]) for n in range(1, 5)]
    later = row(100, 160, 30, [*range(900, 910)])
    waits = row(50, 160, 30, [*range(700, 710)], abort_after=20)  # all four slots are taken
    alone = run(written(tmp_path, [*busy, later]), name)
    alongside = run(written(tmp_path, [*busy, waits, later]), name)
    kept = [0, 1, 2, 3, 5]
    assert alongside.requests["status"].tolist() == [0, 0, 0, 0, ABORTED, 0]
    for column in ("first_token_ns", "finish_ns", "cached_prefix_length_used", "queue_ns"):
        assert (
            np.asarray(alongside.requests[column])[kept].tolist()
            == np.asarray(alone.requests[column]).tolist()
        )


def test_a_load_that_read_buffers_hold_back_is_freed_when_its_request_is_aborted(tmp_path):
    """Its first layer is still in transit, and no step will compute on it and free the buffer."""
    before = [row(0, 640, 4, [*range(40)]), row(500, 640, 4, [*range(100, 140)])]
    again = row(1000, 656, 30, [*range(40), 200], abort_after=1)
    found = run(written(tmp_path, [*before, again, row(2000, 640, 4, [*range(100, 140)])]), "read buffers")
    assert found.requests["status"].tolist() == [0, 0, ABORTED, 0]


@pytest.mark.parametrize("name", ["own", "vllm"])
def test_an_aborted_requests_blocks_admit_the_next_request(tmp_path, name):
    large = row(0, 640, 300, [*range(40)])
    waits = row(10, 640, 10, [*range(100, 140)])
    kept_out = run(written(tmp_path, [large, waits]), name).requests["first_token_ns"][1]
    admit = run(written(tmp_path, [{**large, "abort_after": 200}, waits]), name).requests["first_token_ns"][1]
    assert admit < 400_000_000 < kept_out


@pytest.mark.parametrize("engine", ["native", "spec", "spec-plain"])
def test_named_answers_are_found_by_whoever_repeats_them(tmp_path, engine):
    options = RunOptions(engine=engine)
    first = row(0, 32, 33, [0, 1, 2, 3], named_length=65)
    again = row(2000, 80, 4, [0, 1, 2, 3, 9])
    assert (
        run(written(tmp_path, [first, again]), options=options).requests["cached_prefix_length_used"][1] == 64
    )
    unnamed = {**first, "hash_ids": [0, 1]}
    del unnamed["named_length"]
    found = run(written(tmp_path, [unnamed, again]), options=options)
    assert found.requests["cached_prefix_length_used"][1] == 32


def test_a_trace_that_is_written_again_keeps_what_it_says(tmp_path):
    trace = written(
        tmp_path, [row(0, 32, 33, [0, 1, 2, 3], named_length=65, abort_after=1.25), row(1, 16, 2, [0])]
    )
    lines = [json.loads(line) for line in mooncake_lines(trace)]
    assert (lines[0]["named_length"], lines[0]["abort_after"]) == (65, 1.25)
    assert not {"named_length", "abort_after"} & lines[1].keys()
    assert len(replace(trace).abort_after_ns) == 2
