"""T-LRU as the policy of a timed tier: block for block as in a model of it, and its paper's sign under
load."""

import json
import os
import random

import kvcache_sim as kv
import numpy as np
import pytest
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.generate import build
from kvcache_sim.workload.toolbox.transforms import merge
from tail_lru import tail_lru_hits

NAME = "kvcache_sim.policies.tail_lru:TailLru"


def policy(limit: int, following: int) -> str:
    return f"{NAME}(limit_blocks={limit}, next_blocks={following})"


def rows_of(draw: random.Random) -> list[dict]:
    """Conversations that grow and branch; no prompt was there whole before, so none is cut by a token."""
    conversations = [[first * 1000] for first in range(6)]
    rows = []
    for n in range(draw.randint(5, 40)):
        own = draw.choice(conversations)
        for _ in range(draw.randint(1, 4)):
            own.append(own[0] + len(own))
        ids = [*own[: draw.randint(1, len(own))], 10**6 + n] if draw.random() < 0.3 else list(own)
        size = {"input_length": 512 * len(ids), "output_length": 1}
        rows.append({"timestamp": 1000 * n, **size, "hash_ids": ids})
    return rows


@pytest.mark.parametrize("seed", range(int(os.environ.get("KVSIM_EXAMPLES", "8"))))
def test_without_time_it_is_the_model(tmp_path, seed):
    draw = random.Random(seed)
    rows = rows_of(draw)
    limit = draw.randint(1, 8)
    following = draw.randint(0, limit - 1)
    capacity = max(len(row["hash_ids"]) for row in rows) + draw.randint(0, 12)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    gpu = f"{{capacity: {capacity} blocks, policy: '{policy(limit, following)}'}}"
    text = (
        "trace: {path: t.jsonl}\ncache: {cache_output: false}\nreplica: {instant: true}\n"
        f"tiers: {{gpu: {gpu}, cpu: null, disk: null}}\n"
    )
    scenario = scenario_from_text(text, "s", tmp_path)
    trace = read_requests(scenario)
    expected = tail_lru_hits([row["hash_ids"] for row in rows], capacity, limit, following)
    found = execute(scenario, trace, RunOptions()).run.requests
    assert (found["cached_prefix_length_used"] // 512).tolist() == expected


def agents_with_single_prompts(seed: int, requests: int = 1200):
    """Return half the requests of agents with tool calls and half of prompts that never come again."""
    poisson = {"process": "poisson", "rate_per_s": 0.4}
    agents = {
        "requests": requests // 2,
        "arrivals": {"process": "poisson", "rate_per_s": 0.05},
        "turns": {"kind": "uniform", "min": 6, "max": 20},
        "think_time": {"kind": "lognormal", "median": "8s", "sigma": 0.8, "min": "1s", "max": "90s"},
        "system_prompt_tokens": 1024,
        "new_input_tokens": {"kind": "lognormal", "median": 500, "sigma": 0.8, "min": 1, "max": 4096},
        "subagent_probability": 0.0,
        "block_size": 64,
    }
    alone = {
        "requests": requests // 2,
        "arrivals": poisson,
        "turns": {"kind": "constant", "value": 1},
        "first_input_tokens": {"kind": "lognormal", "median": 3000, "sigma": 0.6, "min": 64, "max": 12000},
        "block_size": 64,
    }
    return merge([build("agentic", agents, seed), build("conversational", alone, seed + 1)])


def next_blocks(trace) -> int:
    """Return what nine of ten next turns of the trace's first half bring at most, in blocks."""
    lengths, grown = {}, []
    for row in np.argsort(trace.arrival_ns, kind="stable")[: len(trace) // 2].tolist():
        session, blocks = int(trace.session[row]), int(np.diff(trace.id_offsets[row : row + 2])[0])
        if session >= 0:
            if session in lengths:
                grown.append(blocks - lengths[session])
            lengths[session] = blocks
    return max(1, sorted(grown)[len(grown) * 9 // 10])


def over(trace, limit_blocks: int, name: str) -> float:
    """Return the share of the second half's requests with more uncached blocks than a limit."""
    run = kv.simulate(
        trace,
        cache={"block_size": trace.block_size},
        tiers={"gpu": {"capacity": "800 blocks", "policy": name}, "cpu": None, "disk": None},
        replica={"max_num_seqs": 4},
    )
    order = np.argsort(np.asarray(run.requests["request"]))
    cached = np.asarray(run.requests["cached_prefix_length_used"])[order]
    missed = (trace.input_tokens - cached) / trace.block_size
    return float((missed[len(trace) // 2 :] > limit_blocks).mean())


def test_its_sign_in_a_timed_run():
    """Of five seeds 2 to 5 have it (means of 1 to 5: .4137 with LRU, .3940 with T-LRU); seed 1 is equal."""
    trace = agents_with_single_prompts(2)
    following = next_blocks(trace)
    limit = 2 * following
    assert over(trace, limit, "lru") == pytest.approx(0.4150, abs=5e-5)
    assert over(trace, limit, policy(limit, following)) == pytest.approx(0.3850, abs=5e-5)


def simulated(text, directory):
    scenario = scenario_from_text(text, "s", directory)
    return execute(scenario, read_requests(scenario), RunOptions())


def test_what_could_never_choose_is_refused(tmp_path):
    (tmp_path / "t.jsonl").write_text(
        '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": []}'
    )
    text = f"trace: {{path: t.jsonl}}\ntiers: {{gpu: {{capacity: 9 blocks, policy: '{policy(8, 8)}'}}}}\n"
    with pytest.raises(KvsimError, match="expected limit_blocks above next_blocks") as refused:
        simulated(text, tmp_path)
    assert "\n" not in str(refused.value)
