"""SGLang's hits per token (pull request 30300): its order by hand, and the sign of its claim on mixed traffic."""

from __future__ import annotations

import json

import numpy as np
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.reference.engines.sglang_tree import PRIORITIES, Node

PAGE = 16


def test_the_order_by_hand():
    """(hits, length): A (3, 8) and B (0, 2) are worth a half each, C (0, 4) a quarter, D (5, 4) 1.5."""
    nodes = {
        name: Node([0] * length, None, last_access=access, creation=0, hit_count=hits)
        for name, hits, length, access in (("A", 3, 8, 2), ("B", 0, 2, 1), ("C", 0, 4, 4), ("D", 5, 4, 3))
    }
    by = {
        policy: sorted(nodes, key=lambda name: PRIORITIES[policy](nodes[name]))
        for policy in ("hpt", "lfu", "lru")
    }
    assert by == {"hpt": ["C", "B", "A", "D"], "lfu": ["B", "C", "A", "D"], "lru": ["B", "A", "D", "C"]}


def hits(path, rows, capacity, capsys):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {}
    for policy in ("sglang:hpt", "sglang:lru"):
        argv = ["cachesim", str(path), "--policy", policy, "--capacity", str(capacity), "--format", "json"]
        assert kvsim([*argv, "--trace-block-size", str(PAGE), "--block-size", str(PAGE)]) == 0
        found[policy] = json.loads(capsys.readouterr().out)["hit_tokens"]
    return found


def row(n, ids):
    return {"timestamp": 10 * n, "input_length": PAGE * len(ids), "output_length": 1, "hash_ids": ids}


def test_shared_prompts_beside_long_documents_and_recency(tmp_path, capsys):
    """Ten short shared prompts among documents read once (seed 3): more than half again as many hits as lru.

    Sessions that grow and are left behind reuse by recency: there lru is not beaten.
    """
    draw, fresh, mixed = np.random.default_rng(3), 10_000, []
    for n in range(600):
        if n % 2:
            ids = list(range(fresh, fresh + 40))  # a document
        else:
            group = int(draw.integers(10))
            ids = [*range(100 * group, 100 * group + 8), fresh]
        fresh += 50
        mixed.append(row(n, ids))
    found = hits(tmp_path / "mixed.jsonl", mixed, 200, capsys)
    assert found["sglang:hpt"] > 1.5 * found["sglang:lru"] > 0
    turns, ids = [], []
    for n in range(600):
        ids = [] if n % 12 == 0 else ids
        ids = [*ids, *range(fresh, fresh + 6)]
        fresh += 6
        turns.append(row(n, ids))
    found = hits(tmp_path / "turns.jsonl", turns, 100, capsys)
    assert 0 < found["sglang:hpt"] <= found["sglang:lru"]
