"""Vendored data equals its sources, is small, and is read as plain readings of the text say."""

import csv
import json
from datetime import datetime

import numpy as np
import pytest
from kvcache_sim.workload.readers import ReadSettings, read_trace
from support.packed_trace import pack
from support.shared_files import DATA, ROOT, vendored

WHOLE = sorted(
    str(path.relative_to(DATA)).removesuffix(".xz").removesuffix(".packed")
    for folder in ("golden", "traces")
    for path in (DATA / folder).iterdir()
)


def test_it_is_small():
    assert sum(path.stat().st_size for path in DATA.rglob("*.*") if path.suffix != ".pyc") <= 340_000


@pytest.mark.parametrize("name", WHOLE)
def test_a_copy_is_the_original(name):
    original = ROOT.parent / "shared" / name
    if not original.exists():
        pytest.skip(f"shared file absent: ../shared/{name}")
    assert vendored(name).read_bytes() == original.read_bytes()


def test_another_trace_is_not_packed():
    row = {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [7, 8]}
    with pytest.raises(ValueError, match="counted ids"):
        pack((json.dumps(row) + "\n").encode())


def test_azure_lengths_and_times():
    with (DATA / "heads/azure2023_conv.csv").open() as file:
        rows = list(csv.DictReader(file))
    trace = read_trace(DATA / "heads/azure2023_conv.csv")
    assert len(trace) == len(rows) == 100
    assert trace.input_tokens.tolist() == [int(row["ContextTokens"]) for row in rows]
    assert trace.output_tokens.tolist() == [int(row["GeneratedTokens"]) for row in rows]
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    seconds = [(time - times[0]).total_seconds() for time in times]
    assert trace.arrival_ns / 1e9 == pytest.approx(seconds, abs=2e-6)


def test_weka_sessions_and_what_their_blocks_share():
    lines = (DATA / "heads/weka_agentic_dev.jsonl").read_text().splitlines()
    trace = read_trace(DATA / "heads/weka_agentic_dev.jsonl")
    texts = [json.loads(line) for line in lines]
    rows = [row for session in texts for row in session["rows"] if "in" in row]
    assert sorted(trace.input_tokens.tolist()) == sorted(row["in"] for row in rows)
    agents = sum(row["type"] == "subagent" for session in texts for row in session["rows"])
    assert agents == (trace.after >= 0).sum() > 0
    blocks, distinct = 0, 0
    for session in texts:
        known: set[int] = set()
        for row in session["rows"]:
            for part in filter(None, row.get("hash", "").split(",")):
                first, _, last = part.partition("-")
                known |= set(range(int(first), int(last or first) + 1))
                blocks += int(last or first) - int(first) + 1
        distinct += len(known)
    assert (len(trace.block_ids), trace.distinct_ids) == (blocks, distinct)


@pytest.mark.parametrize(
    ("name", "rows", "block", "key"),
    [
        ("conversation_trace.jsonl", 12_031, 512, "input_length"),
        ("sharegpt_llama31_8b_300_b16.jsonl", 300, 16, "input_length"),
        ("miniswe_b256bytes.jsonl", 402, 256, "input_bytes"),
    ],
)
def test_rows_of_whole_traces(name, rows, block, key):
    path = vendored(f"traces/{name}")
    texts = [json.loads(line) for line in path.read_text().splitlines()]
    settings = ReadSettings(block_size=16) if block == 16 else ReadSettings(bytes_per_token=1)
    trace = read_trace(path, settings=settings)
    assert (len(trace), len(texts), trace.block_size) == (rows, rows, block)
    assert trace.input_tokens.tolist() == [row[key] for row in texts]
    ids = [block_id for row in texts for block_id in row["hash_ids"]]
    order = dict.fromkeys(ids)
    position = {name: n for n, name in enumerate(order)}
    assert np.array_equal(trace.block_ids, [position[name] for name in ids])
