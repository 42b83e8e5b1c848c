"""Rows of requests written during a run: same tables, digests and figures as of rows kept in memory."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvcache_sim.base.tiers import KV_SOURCES
from kvcache_sim.metrics import durations, request_rows, tables
from kvcache_sim.metrics.columns import REQUEST_COLUMNS
from kvcache_sim.metrics.digests import ResultsDigest, digest_of_results
from kvcache_sim.metrics.durations import Durations
from kvcache_sim.metrics.load_run import load_run
from kvcache_sim.metrics.percentiles import describe
from kvcache_sim.metrics.request_rows import KeptRows, RequestRows
from kvcache_sim.metrics.run_directory import open_run_directory
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.product.scenarios import store
from support.request_rows import rows as request_rows_of

WIDTH = len(REQUEST_COLUMNS)
SCENARIO = """
workload: {kind: conversational, requests: 300, first_input_tokens: 600, output_tokens: 20,
           arrivals: {process: poisson, rate_per_s: 4}}
cluster: {machines: 2}
tiers: {gpu: {capacity: 40 blocks}}
replica: {max_model_len: 800}
"""


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(23)), st.lists(st.integers(1, 6), min_size=1), st.integers(2, 9))
def test_rows_in_any_order_leave_in_file_order(order, batches, group):
    whole = {
        name: (np.arange(23) * (7 + at)).astype(column.dtype)
        for at, (name, column) in enumerate(REQUEST_COLUMNS.items())
    }
    whole["request"] = np.arange(23, dtype=np.int32)
    left: list = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_rows, "GROUP_ROWS", group)
        rows, kept = RequestRows(left.append), KeptRows()
        waiting = list(order)
        while waiting:
            for count in batches:
                now, waiting = waiting[:count], waiting[count:]
                packed = [struct.pack(f"{WIDTH}q", *(int(c[row]) for c in whole.values())) for row in now]
                rows.add(b"".join(packed))
                rows.hit_shares()  # puts all rows so far into their groups
        rows.end()
    assert [len(part["request"]) for part in left] == [group] * (23 // group) + [23 % group] * (
        23 % group > 0
    )
    digest = ResultsDigest(io.BytesIO())
    for part in left:
        kept.add(part)
        digest.add(part)
    for name, column in kept.columns().items():
        assert np.array_equal(column, whole[name]), name
    assert digest.value() == digest_of_results(whole)


def run(directory: Path, options: RunOptions, leaves: bool):
    scenario = scenario_from_text(SCENARIO, "s.yaml", Path.cwd(), [])
    requests = read_requests(scenario)
    with open_run_directory(directory, force=False) as index:
        execution = execute(scenario, requests, options, directory=index if leaves else None)
        store(execution, index, [])
    return execution, load_run(directory)


def test_shares_of_hits_and_first_arrivals_are_of_the_rows_so_far():
    """Of finished requests alone; a request that started again keeps its first arrival, and waited since."""
    columns = request_rows_of(
        4,
        arrival_ns=[10, 20, 30, 40],
        queue_ns=[1, 2, 3, 4],
        finish_ns=[0, 90, -1, 80],
        input_tokens=[3, 5, 100, 8],
        **{f"cached_{source}_tokens": [at, 1, 50, 2] for at, source in enumerate(KV_SOURCES)},
    )
    packed = np.column_stack([column.astype(np.int64) for column in columns.values()])
    left: list = []
    seen: list = []
    rows = RequestRows(left.append)
    assert set(rows.hit_shares().values()) == {0.0}
    rows.watch(lambda part: seen.extend(part["request"].tolist()))
    rows.first_arrivals = {1: 7, 2: 4, 9: 0}
    rows.add(packed[3].tobytes())
    assert rows.hit_shares() == dict.fromkeys(KV_SOURCES, 2 / 8)
    rows.add(packed[:3].tobytes())
    assert rows.hit_shares() == {source: (at + 3) / 16 for at, source in enumerate(KV_SOURCES)}
    rows.end()
    assert (seen, rows.first_arrivals) == ([3, 0, 1, 2], {9: 0})
    assert left[0]["arrival_ns"].tolist() == [10, 7, 4, 40]
    assert left[0]["queue_ns"].tolist() == [1, 15, 3, 4]
    assert left[0]["cached_gpu_tokens"].tolist() == columns["cached_gpu_tokens"].tolist()


def test_a_run_whose_rows_leave_is_the_run_whose_rows_stay(tmp_path, monkeypatch):
    options = RunOptions()
    kept, kept_read = run(tmp_path / "kept", options, leaves=False)
    for index in (request_rows, tables):
        monkeypatch.setattr(index, "GROUP_ROWS", 16)
    left, left_read = run(tmp_path / "left", options, leaves=True)
    assert len(kept.run.requests["request"]) == 300
    assert not left.run.requests
    assert left.run.digest_results == kept.run.digest_results
    assert left.summary == kept.summary
    assert left.summary["context_window"]["rejected"] > 0
    mine, other = left_read.requests(), kept_read.requests()
    assert list(mine) == list(other)
    for name, column in mine.items():
        assert np.array_equal(column, other[name]), name
    assert (tmp_path / "left" / "requests.parquet").stat().st_size > 0
    assert not list(tmp_path.glob("left/.*"))


pieces = st.lists(
    st.lists(st.one_of(st.just(0), st.integers(0, 50), st.integers(0, 2**50)), max_size=40),
    min_size=1,
    max_size=12,
)


@given(pieces, st.integers(0, 30))
def test_durations_are_exact_up_to_a_bound_and_near_beyond_it(parts, bound):
    arrays = [np.array(part, np.int64) for part in parts]
    values = np.concatenate(arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durations, "EXACT_DURATIONS", bound)
        taken = Durations()
        for part in arrays:
            taken.add(part)
        got, exact = taken.describe(), describe(values)
    if len(values) <= bound:
        assert got == exact
    if not len(values):
        return
    assert {name: got[name] for name in ("avg", "min", "max")} == {
        name: exact[name] for name in ("avg", "min", "max")
    }
    for name in ("p99", "p90", "p75", "p50"):
        assert got[name] == pytest.approx(exact[name], rel=1e-3), name
    assert got["std"] == pytest.approx(exact["std"], rel=1e-6, abs=1e-9 * (1 + exact["avg"]))
