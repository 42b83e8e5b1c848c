"""The Mooncake reader: exact columns of good files, and the traces' known integers."""

import gzip
import hashlib
import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from kvcache_sim.workload.readers import ReadSettings, read_report, read_trace
from support.examples import examples
from support.shared_files import shared

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


_row = st.tuples(
    st.integers(0, 3),
    st.integers(1, 80),
    st.integers(0, 20),
    st.sampled_from((None, "a", "b")),
    st.booleans(),
)


_GAPS = [(0, 1, 0, None, True), (0, 32, 0, "a", False), (0, 48, 0, "a", False)]


@example(_GAPS, "fill", False)
@examples(60)
@given(st.lists(_row, min_size=1, max_size=10), st.sampled_from(("fill", "leave")), st.booleans())
def test_rows_without_ids_are_named_by_their_session_before_they_are_sorted(drawn, missing, more_keys):
    """A model in lists of names: unnamed rows repeat their session's last turn if they are longer; all else is new."""
    rows, expected, past, turns = [], [], {}, Counter()
    for k, (at, tokens, answer, session, has_ids) in enumerate(drawn):
        rows.append({"timestamp": at, "input_length": tokens, "output_length": answer})
        names = []
        if has_ids:  # whole blocks are those of all rows, the last partial one is its row's own
            names = [
                block if 16 * block + 16 <= tokens else 100 * (k + 1) for block in range(-(-tokens // 16))
            ]
            rows[-1]["hash_ids"] = names
        elif missing == "fill":
            names = [(k, block) for block in range(tokens // 16)]
        if session is not None:
            rows[-1] |= {"session_id": session, "turn": turns[session]}
            turns[session] += 1
            if not has_ids and missing == "fill":
                before, length = past.get(session, ([], 0))
                names = before + names[len(before) :] if tokens > length else names
                past[session] = (names, tokens + answer)
        expected.append((at, tokens, names))
        rows[-1] |= {"secret": "x"} if more_keys else {}
    bad = '{"timestamp": 0, "input_length": -1, "output_length": 5}'
    text = "\n".join([json.dumps(rows[0]), bad, *map(json.dumps, rows[1:])])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.jsonl")
        path.write_text(text)
        settings = ReadSettings(
            block_size=16, missing_ids=missing, time_order="sort", on_bad_row="skip", format="mooncake"
        )
        found = read_report(path, settings=settings)
    trace, dense = found.trace, {}
    expected.sort(key=lambda one: one[0])
    bounds = trace.id_offsets.tolist()
    assert found.skipped == {"length": 1}
    assert "1 rows skipped" in trace.warnings[0]
    assert any("secret" in line for line in trace.warnings) == more_keys
    assert trace.input_tokens.tolist() == [tokens for _, tokens, _ in expected]
    for k, (_, _, names) in enumerate(expected):
        assert trace.block_ids[bounds[k] : bounds[k + 1]].tolist() == [
            dense.setdefault(one, len(dense)) for one in names
        ]
    assert trace.distinct_ids == len(dense) == len(set(np.asarray(trace.id_names).tolist()) or dense)
