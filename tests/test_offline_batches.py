"""Offline batches: each begins when the last has ended, caches emptied between; samples, makespan and tail."""

from __future__ import annotations

import json

import numpy as np
import pytest
from kvcache_sim.metrics.batches import summarize_batches
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.agreement import columns
from support.lookahead import by_the_clock


def worked_off(tmp_path, prompts, offline, more="", lengths=(4,)):
    """Return the run of so many prompts of two blocks, all with the first in common, and its trace."""
    rows = [
        {
            "timestamp": 99 * n,
            "input_length": 1024,
            "output_length": lengths[n % len(lengths)],
            "hash_ids": [0, 1 + n],
        }
        for n in range(prompts)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"trace: {{path: t.jsonl}}\ntiers: {{gpu: {{capacity: 400 blocks}}}}\noffline: {offline}\n{more}"
    scenario = scenario_from_text(text, "s", tmp_path)
    trace = read_requests(scenario)
    made = by_the_clock(lambda: execute(scenario, trace, RunOptions(check="full")))
    assert len({run.summary["digest"]["results"] + run.summary["digest"]["events"] for run in made}) == 1
    return made[0]


@pytest.mark.parametrize(
    "lower", ["", "cluster: {machines: 2}\ntiers: {gpu: {capacity: 400 blocks}, cpu: {capacity: 99 blocks}}"]
)
def test_a_batch_begins_when_the_last_one_and_the_update_have_ended(tmp_path, lower):
    more = lower.partition("\n")[0]
    made = worked_off(tmp_path, 5, "{batch: 2, samples: 3, pause: 7s}", more, lengths=(40, 3, 200))
    rows = made.run.requests
    batch = rows["request"] // 6
    starts = [int(rows["arrival_ns"][batch == k].min()) for k in range(3)]
    ends = [int(rows["finish_ns"][batch == k].max()) for k in range(3)]
    assert starts == [0, ends[0] + 7 * 10**9, ends[1] + 7 * 10**9]
    assert all((rows["arrival_ns"][batch == k] == starts[k]).all() for k in range(3))
    told = made.summary["offline"]
    assert told["batches"] == 3
    assert told["makespan_s"] == ends[2] / 1e9
    assert told["batch_s"] == pytest.approx(sum(b - a for a, b in zip(starts, ends, strict=True)) / 3e9)


def test_one_batch_of_all_arrives_at_once(tmp_path):
    batch = worked_off(tmp_path, 12, "{batch: 12}", lengths=(40, 3, 200))
    path = tmp_path / "t.jsonl"
    rows = [json.loads(line) | {"timestamp": 0} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = "trace: {path: t.jsonl}\ntiers: {gpu: {capacity: 400 blocks}}"
    scenario = scenario_from_text(text, "s", tmp_path)
    plain = execute(scenario, read_requests(scenario), RunOptions())
    assert columns(batch.run.requests) == columns(plain.run.requests)


def test_samples_of_a_prompt_are_rows_one_after_another(tmp_path):
    made = worked_off(tmp_path, 3, "{batch: 9, samples: 4}")
    assert len(made.trace) == 12
    offsets, ids = made.trace.id_offsets, made.trace.block_ids
    prompts = [tuple(ids[offsets[n] : offsets[n + 1]].tolist()) for n in range(12)]
    assert [prompts[0]] * 4 + [prompts[4]] * 4 + [prompts[8]] * 4 == prompts
    assert len(set(prompts)) == 3


@pytest.mark.parametrize("flush", ["true", "false"])
@pytest.mark.parametrize("semantics", ["tree", "vllm", "sglang"])
def test_a_weight_update_empties_the_caches(tmp_path, flush, semantics):
    """One request a batch: without the update each but the first finds the block that all have in common."""
    more = f"cache: {{semantics: {semantics}}}"
    made = worked_off(tmp_path, 4, f"{{batch: 1, flush: {flush}}}", more)
    hits = made.run.requests["cached_prefix_length_used"].tolist()
    assert hits == ([0, 512, 512, 512] if flush == "false" else [0, 0, 0, 0])


def test_the_tail_by_hand():
    ends = np.array([*range(1, 20), 100, 500, 503])
    rows = {"request": np.arange(22), "arrival_ns": np.repeat([0, 490], [20, 2]), "finish_ns": ends}
    told = summarize_batches(rows, 20)["offline"]
    # of twenty, two are left when the eighteenth ends at 18; of two, none is a tenth
    assert told == {"batches": 2, "makespan_s": 503e-9, "batch_s": 113 / 2 * 1e-9, "tail_s": 82 / 2 * 1e-9}
