"""Requests aborted by their clients: they leave, their blocks are freed, and other requests are
unaffected."""

import json

import numpy as np
import pytest
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.readers import ReadSettings, read_trace

ABORTED = 2
CHECKED = RunOptions(check="full")
SETTINGS = {
    "own": ["tiers.gpu.capacity=64 blocks"],
    "tiers": ["tiers.gpu.capacity=48 blocks", "tiers.cpu.capacity=96 blocks"],
    "asynchronous": ["tiers.gpu.capacity=64 blocks", "replica.async_scheduling=length"],
    "vllm lookahead": [
        "tiers.gpu.capacity=64 blocks",
        "cache.semantics=vllm",
        "replica.scheduler=vllm",
        "replica.async_scheduling=stop-token",
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
