"""Blocks of several ids: a replay takes them as if the trace had been written with them."""

import csv
import json

import kvcache_sim as kv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.workload.coarser_blocks import in_coarser_blocks
from support.examples import examples

#: Requests as (an earlier request that is continued, how many of its blocks, new blocks, missing tokens).
REQUESTS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 30), st.integers(1, 9), st.integers(0, 15)),
    min_size=2,
    max_size=12,
)


def write(path, requests, per, texts=False):
    """Write prompts of 16-token blocks, chained, with an id for every ``per`` blocks, the last one perhaps partial."""
    rows, prompts, fresh = [], [], iter(range(10**6))
    for k, (earlier, kept, new, missing) in enumerate(requests):
        before = prompts[earlier % k][:kept] if k else []
        prompts.append([*before, *(next(fresh) for _ in range(new))])
        whole = prompts[-1]
        ids = [whole[min(at + per, len(whole)) - 1] for at in range(0, len(whole), per)]
        row = {"timestamp": 100 * k, "input_length": 16 * len(whole) - missing, "output_length": 5}
        rows.append(row | {"hash_ids": [f"b{i}" if texts else i for i in ids]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


POLICIES = [
    ("lmcache:lru", {"cpu_chunks": 4, "chunk_tokens": 64}, ""),
    ("lmcache-server:lru", {"cpu_chunks": 4, "chunk_tokens": 64}, ""),
    ("lru", {"block_size": 64}, "6"),
    ("s3fifo", {"block_size": 64}, "6"),
    ("vllm", {"block_size": 64}, "12"),
    ("sglang:lru", {"block_size": 64}, "12"),
]


@pytest.mark.parametrize("texts", [False, True])
@examples(25)
@given(requests=REQUESTS)
def test_replays_are_those_of_a_trace_of_such_blocks(tmp_path_factory, requests, texts):
    folder = tmp_path_factory.mktemp("traces")
    fine, coarse = (
        kv.read_trace(write(folder / f"{per}.jsonl", requests, per, texts), block_size=16 * per)
        for per in (1, 4)
    )
    made = in_coarser_blocks(fine, 64)
    assert made.block_ids.tolist() == coarse.block_ids.tolist()
    assert made.id_offsets.tolist() == coarse.id_offsets.tolist()
    for policy, settings, capacity in POLICIES:
        found = [kv.cachesim(trace, policy=policy, capacity=capacity, **settings) for trace in (fine, coarse)]
        same = [{k: v for k, v in one.items() if k not in ("trace", "requests")} for one in found]
        for one in same:  # larger ids do not show what prompts share of a block
            one["misses"] = dict(one["misses"])
            names = ("never_seen_tokens", "diverged_tokens", "partial_block_tokens")
            one["new"] = sum(one["misses"].pop(name) for name in names)
        assert same[0] == same[1], policy
    curves = [kv.curve(trace, block_size=64, capacity=["4"]) for trace in (fine, coarse)]
    assert curves[0].points == curves[1].points


def test_ids_that_do_not_cover_a_block_share_nothing_of_it(tmp_path):
    """Five ids name 80 of 130 tokens: one block of 64; the other 50 tokens are not known to be the same."""
    rows = [
        {"timestamp": k, "input_length": 130, "output_length": 1, "hash_ids": [1, 2, 3, 4, 5]} for k in (0, 1)
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = kv.read_trace(tmp_path / "t.jsonl", block_size=16)
    for size, hit in ((16, 80), (32, 64), (64, 64), (128, 0)):
        assert kv.cachesim(trace, policy="lru", capacity=100, block_size=size)["hit_tokens"] == hit


def test_a_trace_that_is_read_row_by_row_is_read_whole_for_them(tmp_path, capsys):
    """A sample of a curve reads rows."""
    path = write(tmp_path / "t.jsonl", [(0, 0, 8, 0), (0, 6, 2, 0)], 1)
    options = ["--trace-block-size", "16", "--format", "json", "--sample", "0.5"]
    assert run(["curve", path, *options, "--block-size", "64"]) == 0
    assert json.loads(capsys.readouterr().out)["block_size"] == 64
    assert run(["curve", path, *options, "--block-size", "40"]) == 2
    assert "expected a divisor or a multiple of 16" in capsys.readouterr().err


def test_a_flat_cache_has_a_table_of_requests(tmp_path, capsys):
    """Blocks 0 to 3, then 0, 1 and 4, 5: two hits of four; one more request of all six hits them all."""
    path, table = (
        write(tmp_path / "t.jsonl", [(0, 0, 4, 0), (0, 2, 2, 0), (1, 4, 1, 0)], 1),
        tmp_path / "r.csv",
    )
    options = [
        "--trace-block-size",
        "16",
        "--flat",
        "--capacity",
        "9",
        "--requests",
        str(table),
        "--format",
        "json",
    ]
    assert run(["cachesim", path, *options]) == 0
    figures = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(table.open()))
    assert [int(row["hit_blocks"]) for row in rows] == [0, 2, 4]
    assert [int(row["queried_blocks"]) for row in rows] == [4, 4, 5]
    assert sum(int(row["hit_blocks"]) for row in rows) == figures["hits"]
