"""A part of TTFT is a row of the table: a run with one more has it in its columns, sums, pictures and lanes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from kvcache_sim.metrics.columns import REQUEST_COLUMNS, TTFT_PARTS
from kvcache_sim.metrics.ttft_parts import ROWS, TtftPart
from kvcache_sim.report.timeline.requests import request_records
from support.tiered_scenario import BASE


def kvsim(*arguments: str) -> str:
    """Return what a kvsim prints whose table of TTFT has an eighth row."""
    command = [sys.executable, str(Path(__file__).with_name("eighth_part.py")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eight")
    (folder / "s.yaml").write_text(BASE)
    shown = kvsim("simulate", "-c", str(folder / "s.yaml"), "-o", str(folder / "run"))
    assert "client + rate_limit +" in " ".join(shown.split())
    return folder / "run"


def test_a_made_up_part_has_its_column_and_its_sum(run: Path):
    table = pq.read_table(run / "requests.parquet")
    names = table.column_names
    assert names[names.index("client_ns") + 1] == "rate_limit_ns"
    assert set(table["rate_limit_ns"].to_pylist()) == {0}
    parts = json.loads((run / "summary.json").read_text())["latency"]["ttft_parts"]
    assert list(parts) == ["client", "rate_limit", *TTFT_PARTS[1:]]


def test_it_is_drawn(run: Path, tmp_path: Path):
    pytest.importorskip("altair")
    kvsim("plot", str(run), "waterfall", "-o", str(tmp_path / "w.html"))
    assert "rate limit, ms" in (tmp_path / "w.html").read_text()


def test_it_has_its_slice_on_the_timeline():
    rows = {name: np.zeros(1, np.int64) for name in [*REQUEST_COLUMNS, "rate_limit_ns"]}
    rows |= {"rate_limit_ns": np.array([7]), "queue_ns": np.array([5]), "first_token_ns": np.array([12])}
    rows["finish_ns"] = np.array([20])
    ROWS.insert(1, TtftPart("rate_limit", "waiting for a tenant's rate limit", "#0b6e4f", False))
    try:
        slices = [json.loads(record) for record in request_records(rows)[0]]
    finally:
        ROWS.pop(1)
    assert [one["name"] for one in slices] == ["request 0", "rate limit", "queue", "decode"]


def test_the_parts_are_columns_in_the_order_of_a_request():
    columns = [name for name in REQUEST_COLUMNS if name.removesuffix("_ns") in TTFT_PARTS]
    assert columns == [f"{part}_ns" for part in TTFT_PARTS]
