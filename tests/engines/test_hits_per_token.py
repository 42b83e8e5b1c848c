"""SGLang's hits per token (pull request 30300): its order by hand, and the sign of its claim on mixed traffic."""

import json

import numpy as np
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest
from support.small_traces import trace_of

PAGE = 16


def test_the_order_by_hand():
    """A prompt counts a hit each time it is served. Hits and one more, a page:

    A (7 times, 8 pages) and B (once, 2 pages) are worth 1 each, C (once, 4 pages) a half, D (6 times, 4 pages) 7/4.
    """
    first, pages, serves = (
        {"A": 0, "B": 10, "C": 20, "D": 30},
        {"A": 8, "B": 2, "C": 4, "D": 4},
        "BAAAAAAADDDDDDC",
    )
    # behind its pages of 2 tokens every prompt has a token of its own, which is always computed
    rows = [[*range(first[name], first[name] + pages[name]), 100 + k] for k, name in enumerate(serves)]
    trace = trace_of(rows, 2, [2 * pages[name] + 1 for name in serves])
    starts = {2 * int(trace.block_ids[trace.id_offsets[serves.index(name)]]): name for name in first}
    by = {}
    for policy in ("hpt", "lfu", "lru"):
        leaves = REPLAYERS["sglang"](ReplayRequest(trace, 2, 64), policy)["final_leaf_first5"]
        by[policy] = [starts[int(line.partition(":")[0])] for line in leaves]
    assert by == {"hpt": ["C", "B", "A", "D"], "lfu": ["B", "C", "D", "A"], "lru": ["B", "A", "D", "C"]}


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


def test_shared_prompts_among_long_documents_and_recency(tmp_path, capsys):
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
