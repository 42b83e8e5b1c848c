"""``kvsim cachesim``: the oracle rows through the command line, its tables, and what it refuses."""

from __future__ import annotations

import csv
import json

import pytest
from kvcache_sim.cli import main
from shared_files import shared
from support.exact_rows import OUTPUTS, PROVENANCE, rows_of

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


def test_what_a_person_sees(capsys, small):
    code, out, _ = run(capsys, small, "--policy", "vllm", "--capacity", 5, "--trace-block-size", 8)
    assert code == 0
    assert out.startswith("vllm: ")
    assert "at this size (Belady; unbounded " in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    assert "tokens missed:" in out
    assert "final_free_queue_sha256" in out


@pytest.mark.parametrize("policy", ["lru", "belady"])
def test_what_a_person_sees_of_a_flat_cache(capsys, small, policy):
    ask = (small, "--policy", policy, "--capacity", 5, "--trace-block-size", 8, "--flat")
    code, out, err = run(capsys, *ask)
    assert code == 0, err
    exact = figures(capsys, *ask)
    assert out.startswith(f"{policy}, flat: {100 * exact['hit_ratio']:.1f} % of block accesses hit")
    assert f"\nmisses            {exact['misses']}\n" in out
    assert ("behind a prefix look-up" in out) == (policy != "belady")


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


def test_a_prompt_larger_than_the_cache_is_rejected(capsys, small):
    got = figures(capsys, small, "--policy", "vllm", "--capacity", 4, "--trace-block-size", 8)
    assert (got["rejected_requests"], got["rejected_prompt_tokens"]) == (1, 40)
    assert got["misses"]["missed_tokens"] == got["queried_tokens"] - 40 - got["hit_tokens"]


def test_capacity_beyond_any_need_costs_nothing(capsys, small):
    some = figures(capsys, small, "--policy", "vllm", "--capacity", 1000, "--trace-block-size", 8)
    assert some["evictions"] == 0
    assert some["final_free_queue_first5"] == ["-"] * 5
    # a 2, b 1, c 0, d 5 and e 1: the last token of a prompt is computed, so its whole block is stored again
    assert (some["hashed_blocks_inserted"], some["hit_tokens"]) == (9, 48)


@pytest.mark.parametrize("backend", ["python", "native"])
def test_another_backend_is_one_line_that_names_what_there_is(capsys, small, backend):
    code, out, err = run(capsys, small, "--capacity", 9, "--trace-block-size", 8, "--backend", backend)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--backend: removed: the core replays every policy" in err
    assert "kvsim simulate --engine spec" in err


@pytest.mark.parametrize("policy", ["vllm", "sglang:lru", "vllm-offload:arc", "lru"])
def test_sizes_become_blocks(capsys, small, policy):
    ask = (small, "--policy", policy, "--trace-block-size", 8, "--capacity")
    by_size = figures(capsys, *ask, "1MiB", "--kv-bytes-per-token", 16384)
    assert by_size.pop("capacity_bytes") == 1 << 20
    assert by_size == figures(capsys, *ask, "8") == figures(capsys, *ask, "64 tokens")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--capacity", "0"), "no block"),
        (("--capacity", "-3"), "no block"),
        (("--capacity", "16GiB"), "--model"),
        (("--capacity", "1e3"), "not a capacity"),
        (("--capacity", "9" * 23), "not a capacity"),
        (("--capacity", "9", "--policy", "vlm"), "did you mean vllm"),
        (("--capacity", "9", "--policy", "vllm", "--order", "root"), "no effect"),
        (("--capacity", "9", "--policy", "vllm", "--last-partial", "keep"), "no effect"),
        (("--capacity", "9", "--policy", "vllm", "--block-size", "3"), "divisor of 8"),
        (("--capacity", "9", "--policy", "sglang:lru", "--flat"), "no effect"),
        (("--capacity", "9", "--model", "llama-3-8b", "--kv-bytes-per-token", "9"), "a model says its own"),
        (("--capacity", "9", "--store-threshold", "2"), "no effect"),
        (("--capacity", "9", "--force"), "--requests"),
        (("--capacity", "9", "--policy", "vllm", "--window", "-1"), "--window"),
    ],
)
def test_refusals(capsys, small, argv, says):
    code, out, err = run(capsys, small, "--trace-block-size", 8, *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
