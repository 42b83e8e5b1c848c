"""Runs of fleets whose times are known: prompts of four blocks of 512 tokens, each at a second of its own."""

import json

from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.lookahead import by_the_clock

S = 10**9


def at_times(tmp_path, rows, fleet, more="tiers: {gpu: {capacity: 99 blocks}}"):
    """Return the scenario, also written to ``s.yaml``, and its run, which is the same in other orders of events.

    ``rows``: (second, id of the first block) with the number of output tokens, else two, and of blocks, else four.
    """
    path = tmp_path / "t.jsonl"
    lines = []
    for second, first, *rest in rows:
        output, blocks = (*rest, *(2, 4)[len(rest) :])
        ids = list(range(first, first + blocks))
        lines.append(
            {
                "timestamp": second * 1000,
                "input_length": 512 * blocks,
                "output_length": output,
                "hash_ids": ids,
            }
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if "tiers:" not in more:
        more += "\ntiers: {gpu: {capacity: 99 blocks}}"
    text = f"trace: {{path: {path}}}\nfleet: {fleet}\n{more}\n"
    (tmp_path / "s.yaml").write_text(text)
    scenario = scenario_from_text(text, "s", tmp_path)
    runs = by_the_clock(lambda: execute(scenario, read_requests(scenario), RunOptions(check="full")))
    assert len({run.summary["digest"]["results"] + run.summary["digest"]["events"] for run in runs}) == 1
    return scenario, runs[0]


def changes(made):
    """Return the changes of a fleet that scales as (second, what, machine)."""
    return [tuple(row.values()) for row in made.summary["fleet"]["changes"]]


def found(made, column="cached_prefix_length_used"):
    """Return the whole blocks that each request found (the last token of a whole prompt is computed again)."""
    return [-(-tokens // 512) for tokens in made.run.requests[column].tolist()]
