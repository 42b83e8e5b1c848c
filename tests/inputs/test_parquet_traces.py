"""Traces in Parquet: they read as the rows of JSON that they were written from, whole and a part at a time."""

import contextlib
import json
import subprocess
import sys
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.cli.main import run
from kvcache_sim.workload.readers import read as reading
from kvcache_sim.workload.readers.read import read_trace
from kvcache_sim.workload.readers.settings import ReadSettings
from kvcache_sim.workload.toolbox.write import mooncake_lines
from support.examples import examples
from support.small_traces import NAMES, tree_traces

BLOCK = 16
ROW = {"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [3, 4, 9]}


def lines_of(trace, name):
    for row in map(json.loads, mooncake_lines(trace)):
        row |= {"hash_ids": [name(k) for k in row.get("hash_ids", [])]}
        yield json.dumps(row) + "\n"


@examples(10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree_traces())
def test_what_is_converted_is_what_was_read(tmp_path, monkeypatch, capsys, trace):
    source, written = str(tmp_path / "a.jsonl"), str(tmp_path / "b.parquet")
    for name in ("numbers", "far numbers"):
        with open(source, "w") as file:
            file.writelines(lines_of(trace, NAMES[name]))
        size = ["--trace-block-size", str(trace.block_size)]
        for whole in 1 << 20, -1:
            monkeypatch.setattr(reading, "PART_REFERENCES", whole)
            monkeypatch.setattr(reading, "WHOLE_REFERENCES", whole)
            assert run(["trace", "convert", source, *size, "-o", written, "--force"]) == 0
            capsys.readouterr()
            assert run(["trace", "convert", written]) == 0
            back = capsys.readouterr().out
            assert run(["trace", "convert", source, *size]) == 0
            assert capsys.readouterr().out == back
            curves = []
            for path, own in (source, size), (written, []):
                assert run(["curve", path, *own, "--format", "json"]) == 0
                document = json.loads(capsys.readouterr().out)
                curves.append({k: v for k, v in document.items() if k not in ("trace", "trace_sha256")})
            assert curves[0] == curves[1]
            assert read_trace(written).block_size == trace.block_size


def test_every_member_comes_back(tmp_path, capsys):
    rows = [
        ROW | {"session_id": "é", "priority": -2, "kind": [1]},
        ROW | {"session_id": "é", "timestamp": 1.000001, "history_length": 30, "named_length": 48},
        {**ROW, "session_id": "é", "delay": 2.5, "abort_after": 3, "after": 0},
        {"timestamp": 7, "input_length": 9, "output_length": 0, "is_conversational_turn": True},
    ]
    rows[2].pop("timestamp")
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert (
        run(["trace", "convert", str(source), "--trace-block-size", "16", "-o", str(tmp_path / "b.parquet")])
        == 0
    )
    capsys.readouterr()
    assert run(["trace", "convert", str(tmp_path / "b.parquet")]) == 0
    again = capsys.readouterr().out
    assert run(["trace", "convert", str(source), "--trace-block-size", "16"]) == 0
    assert capsys.readouterr().out == again


def table(path, **columns):
    rows = {name: [value] * 3 for name, value in (ROW | columns).items() if value is not None}
    pq.write_table(pa.table(rows), path)
    return str(path)


def test_a_table_of_other_tools_is_read(tmp_path):
    path = tmp_path / "t.parquet"
    table(path, timestamp=np.int32(5), session_id=7)
    trace = read_trace(path)
    assert (trace.block_size, trace.session_names, trace.arrival_ns.tolist()) == (16, ["7"], [5_000_000] * 3)
    assert trace.id_names.tolist() == [3, 4, 9]


RUNS = st.tuples(st.integers(0, 1 << 62), st.integers(1, 300), st.integers(1, 1 << 40))
LISTS = st.lists(st.none() | st.lists(RUNS, max_size=3), min_size=1, max_size=12)


def packed(path, lists, refused=None, **how):
    """Write ids in the form of ``trace convert``, and again in another form; returns both paths."""
    kind = pa.list_(pa.field("element", how.pop("kind", pa.int64()), nullable=False))
    rows = [
        None if runs is None else sorted({a + k * by for a, n, by in runs for k in range(n)})
        for runs in lists
    ]
    columns = {
        "timestamp": [0.0] * len(rows),
        "input_length": [BLOCK * max(1, len(ids or [])) for ids in rows],
        "output_length": [-1 if row == refused else 1 for row in range(len(rows))],
        "hash_ids": pa.array([ids and [k % (1 << 63) for k in ids] for ids in rows], kind),
    }
    same = pa.table(columns).replace_schema_metadata({b"kvsim.block_size": str(BLOCK)})
    delta = {"hash_ids.list.element": "DELTA_BINARY_PACKED"}
    pq.write_table(same, path / "p.parquet", use_dictionary=False, column_encoding=delta, **how)
    pq.write_table(same, path / "q.parquet")
    return str(path / "p.parquet"), str(path / "q.parquet")


@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LISTS, st.sampled_from([60, 2000, 1 << 20]), st.booleans(), st.booleans(), st.integers(0, 12))
def test_packed_ids_are_read_as_any_others(tmp_path, lists, page_bytes, is_plain, is_unsigned, refused):
    how = {
        "kind": pa.uint64() if is_unsigned else pa.int64(),
        "compression": "NONE" if is_plain else "SNAPPY",
    }
    how |= {"data_page_size": page_bytes, "write_batch_size": 5, "row_group_size": 7}
    mine, theirs = packed(tmp_path, [*lists, None], refused, **how)
    settings = ReadSettings(block_size=BLOCK, on_bad_row="skip")
    read, wanted = read_trace(mine, settings=settings), read_trace(theirs, settings=settings)
    for column in ("block_ids", "id_offsets", "id_names", "input_tokens"):
        assert np.array_equal(getattr(read, column), getattr(wanted, column)), column


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LISTS, st.booleans(), st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), min_size=1))
def test_damaged_packed_ids_end_in_an_answer(tmp_path, lists, is_plain, changes):
    path = Path(packed(tmp_path, lists, compression="NONE" if is_plain else "SNAPPY")[0])
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(3)
    data = bytearray(path.read_bytes())
    for at, change in changes:
        data[chunk.data_page_offset + at % chunk.total_compressed_size] ^= change
    path.write_bytes(data)
    with contextlib.suppress(KvsimError):
        read_trace(path)


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({"input_length": 0}, "t.parquet:1:1: input_length out of range; got 0"),
        ({"input_length": None}, "input_length is missing"),
        ({"hash_ids": ["a"]}, "hash_ids of another type; got list<"),
        ({"hash_ids": [3, None, 9]}, "hash_ids of another type; got list<"),
        ({"hash_ids": [-1]}, "a block id below 0; got -1"),
        ({"hash_ids": [5, 6, 5]}, "a block id stands twice in one row"),
        ({"timestamp": "now"}, "timestamp of another type; got string"),
        ({"timestamp": -1.0}, "timestamp is no time"),
        ({"timestamp": 2.0**63 / 1e6}, "timestamp is no time"),
        ({"delay": float("nan")}, "delay is no time"),
        ({"priority": np.uint64(2**64 - 1)}, "priority is beyond 63 bits"),
        ({"priority": -(2**63)}, "priority is beyond 63 bits"),
        ({"turn": 1.5}, "turn of another type; got double; expected integers"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, columns, line):
    with pytest.raises(KvsimError, match=line.replace("<", ".")):
        read_trace(table(tmp_path / "t.parquet", **columns))


def test_damaged_files_and_other_ids_are_refused(tmp_path, capsys):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1" + bytes(100))
    assert run(["curve", str(path)]) == 3
    assert "damaged Parquet data" in capsys.readouterr().err
    texts = tmp_path / "t.jsonl"
    texts.write_text(json.dumps(ROW | {"hash_ids": ["a", "b", "c"]}) + "\n")
    assert run(["trace", "convert", str(texts), "-o", str(tmp_path / "o.parquet")]) == 2
    assert "no integers of 64 bits" in capsys.readouterr().err
    assert not (tmp_path / "o.parquet").exists()


#: Reads a file with each byte of its footer replaced by two others; pyarrow may end the process, hence one of its own.
EACH_BYTE = """
import sys
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.workload.readers.read import read_trace

path = Path(sys.argv[1])
data = path.read_bytes()
for at in range(len(data) - int.from_bytes(data[-8:-4], "little") - 8, len(data)):
    for value in (data[at] ^ 1, data[at] ^ 0x80):
        path.write_bytes(data[:at] + bytes([value]) + data[at + 1 :])
        try:
            read_trace(str(path))
        except KvsimError:
            pass
"""


def test_a_footer_with_a_changed_byte_is_read_or_refused(tmp_path, capsys):
    source, written = tmp_path / "a.jsonl", tmp_path / "b.parquet"
    source.write_text("".join(json.dumps(ROW | {"timestamp": at}) + "\n" for at in range(3)))
    assert run(["trace", "convert", str(source), "--trace-block-size", "16", "-o", str(written)]) == 0
    done = subprocess.run([sys.executable, "-c", EACH_BYTE, str(written)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_written_columns_are_those_that_the_page_of_formats_names(tmp_path, capsys):
    """Times are doubles of ms, counts integers of 64 bits, ids a list without gaps; the block size is in the
    file."""
    source, written = tmp_path / "a.jsonl", tmp_path / "b.parquet"
    source.write_text(json.dumps(ROW) + "\n")
    assert (
        run(["trace", "convert", str(source), "-o", str(written), "--trace-block-size", str(BLOCK)]) == 0
    ), capsys.readouterr().err
    schema = pq.read_schema(written)
    (ids,) = (field for field in schema if pa.types.is_list(field.type))
    assert ids.name == "hash_ids"
    assert (ids.type.value_field.nullable, pa.types.is_integer(ids.type.value_type)) == (False, True)
    kinds = {field.name: str(field.type) for field in schema if field.name != "hash_ids"}
    times = ("timestamp", "delay", "abort_after")
    assert {name for name, kind in kinds.items() if kind == "double"} == {*times}
    assert (kinds["session_id"], kinds["is_conversational_turn"]) == ("string", "bool")
    assert {
        kinds[name]
        for name in ("input_length", "output_length", "turn", "after", "history_length", "priority")
    } == {"int64"}
    assert schema.metadata[b"kvsim.block_size"] == str(BLOCK).encode()


OTHER = ("delay", "turn", "is_conversational_turn", "after", "history_length", "priority", "abort_after")
COLUMNS = (*ROW, *OTHER, "session_id", "members")
VALUES = [
    *([b"a", b"\xff"], ["a", "1"], ['"a": 1', '"a": '], [1.5, 2.0], [float("nan"), 1.0], [True, False]),
    *(
        [-1, 5],
        [1, None],
        [-(1 << 63), 1],
        [(1 << 63) - 1, 1],
        np.array([-1, 1]).view(np.uint64),
        [None, None],
    ),
    *([date(2026, 1, 1)] * 2, [Decimal("1.5")] * 2, [timedelta(1)] * 2, [{"a": 1}] * 2),
    *([[1], [2]], [["a"], ["b"]], [[b"a"], []], [[[1]], [[2]]], [[1, None], None], [[-1], [2]], [[1.5], []]),
]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_of_any_type_is_read_or_refused_in_one_line(tmp_path, capsys, column):
    """A value that no row can have never becomes another one."""
    path = tmp_path / "t.parquet"
    for values in VALUES:
        given = {name: [value, value] for name, value in ROW.items()} | {column: values}
        pq.write_table(pa.table(given), path)
        code = run(["trace", "convert", str(path), "-o", "-"])
        printed = capsys.readouterr()
        refusal = [line for line in printed.err.splitlines() if not line.startswith(("warning", "  "))]
        assert (code, len(refusal)) in ((0, 0), (3, 1)), (column, values, printed.err)
        if code == 0 and column == "session_id" and None not in list(values):
            shown = [json.loads(line)[column] for line in printed.out.splitlines()]
            assert shown == [str(v) for v in values]


def test_sessions_of_bytes_are_text(tmp_path):
    assert read_trace(table(tmp_path / "t.parquet", session_id="é".encode())).session_names == ["é"]
