"""The Mooncake reader: exact columns of good files, and the traces' known integers."""

from __future__ import annotations

import gzip
import hashlib
import json

import numpy as np
from kvcache_sim.cli.main import run
from kvcache_sim.workload.readers import ReadSettings, read_trace
from shared_files import shared

ROWS = [
    {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]},
    {"timestamp": 46.927, "input_length": 1024, "output_length": 1, "hash_ids": [7, 8]},
    {"timestamp": 46.927, "input_length": 600, "output_length": 2, "hash_ids": [2**63]},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_columns_are_exact(tmp_path):
    path = write(tmp_path / "t.jsonl", ROWS)
    trace = read_trace(path)
    assert trace.arrival_ns.tolist() == [0, 46_927_000, 46_927_000]
    assert trace.input_tokens.tolist() == [1100, 1024, 600]
    assert trace.output_tokens.tolist() == [5, 1, 2]
    assert trace.id_offsets.tolist() == [0, 3, 5, 6]
    assert trace.block_ids.tolist() == [0, 1, 2, 0, 1, 3]
    assert trace.id_names.tolist() == [7, 8, 9, 2**63]
    assert trace.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert trace.warnings == ()


def test_gzip_is_known_by_content(tmp_path):
    path = write(tmp_path / "t.jsonl", ROWS)
    zipped = tmp_path / "really_gz.jsonl"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert np.array_equal(read_trace(zipped).block_ids, read_trace(path).block_ids)
    assert read_trace(zipped).sha256 == hashlib.sha256(zipped.read_bytes()).hexdigest()
    plain, unnamed = (read_trace(zipped, settings=ReadSettings(digest=digest)) for digest in (True, False))
    assert unnamed.sha256 == ""
    assert np.array_equal(unnamed.block_ids, plain.block_ids)


def test_only_documents_hash_the_file(tmp_path, capsys):
    path = write(tmp_path / "t.jsonl", ROWS)
    for options in ((), ("--sample=0.5",)):
        assert run(["curve", str(path), *options, "--format=json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["trace_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_conversation_trace():
    trace = read_trace(shared("traces/conversation_trace.jsonl"))
    assert len(trace) == 12_031
    assert int(trace.input_tokens.sum()) == 144_793_823
    assert int(trace.output_tokens.sum()) == 4_122_048
    assert len(trace.block_ids) == 288_500
    assert trace.distinct_ids == 182_790
    assert len(np.unique(trace.arrival_ns)) == 1_180
    assert trace.warnings == ()


def test_sharegpt_rows_keep_their_decimal_milliseconds():
    trace = read_trace(
        shared("traces/sharegpt_llama31_8b_300_b16.jsonl"), settings=ReadSettings(block_size=16)
    )
    assert int(trace.arrival_ns[0]) == 46_927_000
    assert len(trace) == 300
    assert trace.warnings == ()
