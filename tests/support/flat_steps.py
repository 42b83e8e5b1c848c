"""Runs of flat step times, and the moments of their tokens."""

import json

from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions, simulate

from support.sharegpt_rows import SCENARIO

MS = 1_000_000


#: Steps of 10 ms for any batch.
FLAT = 'model = "llama-3.1-8b"\n[coefficients]\nweights_ms = 10.0\ntoken_ms = 0.0\nexponent = 1.0\n'


def write_rows(tmp_path, rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(arrival_ms, prompt, output, first_id):
    ids = list(range(first_id, first_id + prompt // 16))
    return {"timestamp": arrival_ms, "input_length": prompt, "output_length": output, "hash_ids": ids}


def run(path, *settings, options=RunOptions()):  # noqa: B008  (frozen)
    scenario = load_scenario(SCENARIO, [f"trace.path={path}", *settings])
    return simulate(scenario.settings, read_requests(scenario), options=options)


def moments_ms(result):
    requests = result.requests
    return (requests["first_token_ns"] // MS).tolist(), (requests["finish_ns"] // MS).tolist()
