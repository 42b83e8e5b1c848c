"""T-LRU as the policy of a timed tier: block for block as in a model of it."""

import json
import os
import random

import pytest
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
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


def test_what_could_never_choose_is_refused(tmp_path):
    row = '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": []}'
    (tmp_path / "t.jsonl").write_text(row)
    text = f"trace: {{path: t.jsonl}}\ntiers: {{gpu: {{capacity: 9 blocks, policy: '{policy(8, 8)}'}}}}\n"
    with pytest.raises(KvsimError, match="expected limit_blocks above next_blocks"):
        scenario_from_text(text, "s", tmp_path)
