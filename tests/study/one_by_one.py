"""A machine that serves one request at a time, so that its capacity is known; and answers as single lines."""

import json
from fractions import Fraction

from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.toolbox.transforms import scale

ONE_BY_ONE = """
cache: {enabled: false, block_size: 512}
replica: {max_num_seqs: 1}
tiers: {gpu: {capacity: 1000 blocks}}
"""


def write_trace(path, count, gap_ms=1000, **more):
    rows = [
        {"timestamp": gap_ms * n, "input_length": 512, "output_length": 4, "hash_ids": [n], **more}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def service_times(path) -> tuple[int, int]:
    """Return the TTFT of a request alone, and what each one before it adds, in ns."""
    scenario = scenario_from_text(f"trace: {{path: {path}}}\n{ONE_BY_ONE}", "s", path.parent)
    trace = scale(read_requests(scenario), Fraction(10**6))  # all at once
    rows = execute(scenario, trace, RunOptions()).run.requests
    ttft = rows["first_token_ns"] - rows["arrival_ns"]
    return int(ttft[0]), int(rows["finish_ns"][1] - rows["finish_ns"][0])


def unwrapped(text):
    """Join the lines of a sentence: those after the first are indented."""
    return text.replace("\n  ", " ")
