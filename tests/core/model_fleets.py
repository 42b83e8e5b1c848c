"""Runs of fleets of several models and adapters, and random requests that name them."""

import json
import random

import numpy as np
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions

CHECKED = RunOptions(check="full")
BASE = {
    "replica.step_time": "h100-llama-3.1-8b-tp1",
    "tiers.gpu.capacity": "24 blocks",
    "cache.block_size": 512,
}
#: Columns that say what a user of the fleet sees of a request.
SEEN = ("arrival_ns", "queue_ns", "first_token_ns", "finish_ns", "cached_prefix_length_used", "status")


def random_rows(seed, count=60, gap_ms=120, **members):
    """Requests whose prompts share prefixes; ``members``: choices of each row's further members."""
    draw = random.Random(seed)
    rows = []
    for n in range(count):
        prompt, blocks = draw.randrange(5), draw.randint(1, 6)
        row = {
            "timestamp": n * draw.randint(1, gap_ms),
            "input_length": blocks * 512 - draw.randrange(512),
            "output_length": draw.randint(1, 30),
            "hash_ids": [prompt * 10 + k for k in range(blocks)],
        }
        row |= {name: draw.choice(choices) for name, choices in members.items()}
        rows.append(row)
    return sorted(rows, key=lambda row: row["timestamp"])


def run(tmp_path, rows, options=CHECKED, name="trace", **settings):
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    given = {**BASE, "trace.path": str(path), **settings}
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in nested(given).items())
    scenario = scenario_from_text(text, "the test", tmp_path)
    return execute(scenario, read_requests(scenario), options)


def nested(dotted):
    found = {}
    for key, value in dotted.items():
        *path, last = key.split(".")
        index = found
        for step in path:
            index = index.setdefault(step, {})
        index[last] = value
    return found


def columns(done, which=slice(None)):
    order = np.argsort(np.asarray(done.run.requests["request"]))
    return {name: np.asarray(done.run.requests[name])[order][which].tolist() for name in SEEN}
