"""Tables that the core writes are read by pyarrow as what they were, whatever the values."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.metrics.run import CodedText
from kvcache_sim.metrics.tables import GROUP_ROWS, TableFile
from support.product.reports import Column, read_table, write_table

DTYPES = ("int64", "int32", "int16", "uint8", "bool")
SCHEMA = {dtype: Column(dtype, f"some {dtype}") for dtype in DTYPES} | {"text": Column("str", "words")}


def whole_numbers(dtype: str, rows: int) -> st.SearchStrategy[list[int]]:
    """Lists of values of a dtype, far apart, near together or equal."""
    if dtype == "bool":
        return st.lists(st.integers(0, 1), min_size=rows, max_size=rows)
    limits = np.iinfo(dtype)
    least, most = int(limits.min), int(limits.max)
    kinds = [st.integers(least, most), st.integers(0, 3), st.sampled_from([least, 0, most])]
    return st.one_of(*(st.lists(kind, min_size=rows, max_size=rows) for kind in kinds))


@st.composite
def tables(draw: st.DrawFn) -> dict[str, np.ndarray | CodedText]:
    """Columns of one length, one of each type."""
    rows = draw(st.sampled_from([0, 1, 7, 8, 9, 31, 33, 128, 129, 130, 300]))
    columns: dict[str, np.ndarray | CodedText] = {
        dtype: np.array(draw(whole_numbers(dtype, rows)), dtype) for dtype in DTYPES
    }
    codes = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
    columns["text"] = CodedText(np.array(codes, np.int32), ("", "ünder", "word"))
    return columns


@given(tables())
def test_every_value_is_read_back(columns: dict[str, np.ndarray | CodedText]) -> None:
    """pyarrow, which shares no code with the writer, finds every value and the schema's types."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "table.parquet"
        write_table(path, columns, SCHEMA)
        table = pq.read_table(path)
        table.validate(full=True)
        for dtype in DTYPES:
            values = table[dtype].to_numpy()
            assert values.dtype == dtype
            assert (values == columns[dtype]).all()
        text = columns["text"]
        assert isinstance(text, CodedText)
        assert table["text"].to_pylist() == [text.words[code] for code in text.codes]
        if len(text.codes):
            again = read_table(path)["text"]
            assert isinstance(again, CodedText)
            assert again.words == text.words


def test_row_groups_follow_one_another(tmp_path: Path) -> None:
    """A table that is written in parts holds all of them, and no group more rows than it may."""
    path = tmp_path / "table.parquet"
    rows = np.arange(GROUP_ROWS + 3)
    with TableFile(path, {"a": Column("int64", "rows")}) as table:
        table.write({"a": rows})
        table.write({"a": rows[:5]})
    groups = pq.ParquetFile(path).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [GROUP_ROWS, 8]
    assert (np.asarray(read_table(path)["a"]) == np.concatenate([rows, rows[:5]])).all()
    assert pq.read_schema(path).metadata[b"meaning.a"] == b"rows"


def test_a_table_that_failed_is_no_table(tmp_path: Path) -> None:
    """A table whose block fails has no footer, and no reader takes it."""
    path = tmp_path / "table.parquet"
    with pytest.raises(KeyError), TableFile(path, SCHEMA) as table:
        table.write({"int64": np.arange(3)})
    with pytest.raises(ValueError):
        pq.read_table(path)


def test_what_cannot_be_written_says_why(tmp_path: Path) -> None:
    """An error of the file system keeps its number and its words."""
    with pytest.raises(FileNotFoundError, match=r"No such file or directory$"):
        TableFile(tmp_path / "missing" / "table.parquet", SCHEMA)
    if Path("/dev/full").exists():
        with pytest.raises(OSError, match=r"No space left on device$"):
            write_table(Path("/dev/full"), {"a": np.arange(3)}, {"a": Column("int64", "rows")})
