"""``kvsim cachesim``: the oracle rows through the command line, its tables, and what it refuses."""

import csv
import json

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import main
from kvcache_sim.report.cachesim import CapacityOptions, capacity_of, requests_csv
from support.exact_rows import OUTPUTS, PROVENANCE, rows_of
from support.shared_files import shared

ROWS = [
    {"id": "a", "n": 17, "out": 3, "ids": [1, 2, 3]},
    {"id": "b", "n": 24, "out": 9, "ids": [1, 2, 4]},
    {"id": "c", "n": 17, "out": 1, "ids": [1, 2, 3]},
    {"id": "d", "n": 40, "out": 1, "ids": [5, 6, 7, 8, 9]},
    {"id": "e", "n": 24, "out": 1, "ids": [1, 2, 4]},
]


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.jsonl"
    rows = [
        {"timestamp": i, "input_length": r["n"], "output_length": r["out"], "hash_ids": r["ids"]}
        for i, r in enumerate(ROWS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(capsys, *argv) -> tuple[int, str, str]:
    code = main.run(["cachesim", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def figures(capsys, *argv) -> dict:
    code, out, err = run(capsys, *argv, "--format", "json")
    assert code == 0, err
    return json.loads(out)


def chosen(family: str) -> list[dict]:
    """A row of each policy, window and output mode of a family, small rather than large."""
    first = {}
    for row in rows_of(family):
        kind = tuple(row.get(k) for k in ("policy", "window", "output_mode", "store_threshold", "page_size"))
        if row.get("block_size", 512) == 512:
            first.setdefault(kind, row)
    return list(first.values())


@pytest.mark.parametrize("family", ["vllm", "sglang", "vllm-offload"])
def test_oracle_rows_through_the_command_line(capsys, family):
    trace = shared("traces/conversation_trace.jsonl")
    wrong = []
    for row in chosen(family):
        blocks = (
            row.get("capacity_blocks") or row.get("capacity_chunks") or f"{row['capacity_tokens']} tokens"
        )
        options = {
            "--policy": f"{family}:{row['policy']}" if "policy" in row else family,
            "--capacity": blocks,
            "--block-size": row.get("block_size") or row["page_size"],
            "--window": row.get("window"),
            "--outputs": OUTPUTS.get(row.get("output_mode", "")),
            "--store-threshold": row.get("store_threshold"),
        }
        given = [str(x) for option in options.items() if option[1] is not None for x in option]
        got = figures(capsys, trace, *given)
        wrong += [(row, k) for k, v in row.items() if k not in PROVENANCE and got.get(k) != v]
    assert not wrong


SHOWN = """
    --capacity 5
    --capacity 5 --policy vllm
    --capacity 5 --flat
    --capacity 5 --flat --policy belady
    --capacity 5 --policy lru --policy arc --policy belady
    --capacity 5 --policy lru --policy arc --flat
    --capacity 1000 --policy unbounded
    --capacity 0
    --capacity -3
    --capacity 16GiB
    --capacity 1e3
    --capacity 99999999999999999999999
    --capacity 9 --policy vlm
    --capacity 9 --policy vllm --order root
    --capacity 9 --policy vllm --last-partial keep
    --capacity 9 --policy vllm --block-size 3
    --capacity 9 --policy sglang:lru --flat
    --capacity 9 --model llama-3-8b --kv-bytes-per-token 9
    --capacity 9 --store-threshold 2
    --capacity 9 --force
    --capacity 9 --policy vllm --window -1
    --capacity 9 --backend python
    """


def test_what_a_person_sees(capsys, small, monkeypatch, snapshot):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(small.parent)
    shown = []
    for line in filter(None, map(str.strip, SHOWN.splitlines())):
        code, out, err = run(capsys, small.name, "--trace-block-size", 8, *line.split())
        assert max(map(len, out.splitlines()), default=0) <= 80
        shown.append(f"{line}\n{out}{err}({code})\n")
    assert "\n".join(shown) == snapshot


def test_a_row_a_request(capsys, small, tmp_path):
    target = tmp_path / "requests.csv"
    ask = (small, "--policy", "vllm", "--capacity", 5, "--trace-block-size", 8, "--requests", target)
    summary = figures(capsys, *ask)
    rows = list(csv.DictReader(target.open()))
    assert len(rows) == len(ROWS)
    for row in rows:
        missed = sum(int(v) for k, v in row.items() if k not in ("request", "input_tokens", "hit_tokens"))
        assert missed == int(row["input_tokens"]) - int(row["hit_tokens"])
    for cause, tokens in summary["misses"].items():
        if cause in rows[0]:
            assert tokens == sum(int(row[cause]) for row in rows)
    code, _, err = run(capsys, *ask)
    assert (code, err.count("\n")) == (6, 1)
    assert run(capsys, *ask, "--force")[0] == 0


def test_causes_by_hand(capsys, small):
    """Five blocks of 8: d takes all of them, so the blocks of a and b are evicted before e."""
    got = figures(capsys, small, "--policy", "vllm", "--capacity", 5, "--trace-block-size", 8)
    # a: 16 never seen + 1 left over; b: hits 2 blocks, 8 left over (the last token's block);
    # c: hits 2, 1 left over; d: 32 never seen + 8 left over; e: 16 evicted + 8 left over
    assert got["hit_tokens"] == 32
    misses = got["misses"]
    assert misses["never_seen_tokens"] == 48
    assert misses["evicted_tokens"] == 16
    assert misses["shorter_tokens"] == 26
    assert misses["diverged_tokens"] == misses["not_admitted_tokens"] == 0
    assert misses["evicted_before_requests"] == {"p50": 1, "p90": 1, "max": 1}


def test_capacity_beyond_any_need_costs_nothing(capsys, small):
    some = figures(capsys, small, "--policy", "vllm", "--capacity", 1000, "--trace-block-size", 8)
    assert some["evictions"] == 0
    assert some["final_free_queue_first5"] == ["-"] * 5
    # a 2, b 1, c 0, d 5 and e 1: the last token of a prompt is computed, so its whole block is stored again
    assert (some["hashed_blocks_inserted"], some["hit_tokens"]) == (9, 48)


@pytest.mark.parametrize("policy", ["vllm", "sglang:lru", "vllm-offload:arc", "lru"])
def test_sizes_become_blocks(capsys, small, policy):
    ask = (small, "--policy", policy, "--trace-block-size", 8, "--capacity")
    by_size = figures(capsys, *ask, "1MiB", "--kv-bytes-per-token", 16384)
    assert by_size.pop("capacity_bytes") == 1 << 20
    assert by_size == figures(capsys, *ask, "8") == figures(capsys, *ask, "64 tokens")


#: Options of a capacity in addition to those that each family needs, and tokens of a size where it takes one.
OPTIONS = """
    capacity=17 tokens
    capacity=7 tokens
    capacity=1KiB
    capacity=17 tokens, block_size=4
    host_capacity=9
    host_capacity=80 tokens, write_policy=write_back, storage=unbounded
    host_capacity=9, storage=33 tokens, prefetch_threshold=1
    write_policy=write_back
    storage=9
    host_capacity=9, prefetch_threshold=0
    chunk_tokens=16
    cpu_chunks=3
    cpu_chunks=3, chunk_tokens=24, cpu_policy=arc, secondary=1
    cpu_chunks=1, chunk_tokens=12
    cpu_policy=lru
    secondary=1
    disk_chunks=5
    cpu_chunks=3, chunk_tokens=16, disk_chunks=5
    """
TEXTS = {"capacity", "host_capacity", "storage", "write_policy", "cpu_policy"}
FAMILIES = ["lru", "vllm", "sglang", "vllm-offload", "sglang-unified", "lmcache", "lmcache-server"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_capacity_as_its_options_give_it_or_refuse_it(family, snapshot):
    """Values in the order: tokens a block, blocks, and those of the tiers below; KV of 10 bytes a token."""
    shown = []
    for line in ["", *filter(None, map(str.strip, OPTIONS.splitlines()))]:
        options = {} if family.startswith("lmcache") else {"capacity": "7"}
        for part in filter(None, line.split(", ")):
            name, _, value = part.partition("=")
            options[name] = value if name in TEXTS else int(value)
        try:
            found = str(tuple(capacity_of(family, family, CapacityOptions(**options), 8, 10, 0).values()))
        except UsageError as refusal:
            found = str(refusal)
        shown.append(f"{line} → {found}")
    assert "\n".join(shown) == snapshot


def test_requests_as_csv():
    assert requests_csv({"request": [0, 1], "hit_tokens": [5, 7]}) == b"request,hit_tokens\n0,5\n1,7\n"
    with pytest.raises(ValueError, match="shorter"):
        requests_csv({"request": [0, 1], "hit_tokens": [5]})
