"""Fits to the sums of runs: how rows are cut, and a model found again behind times that are seen late."""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.base.rng import stream
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate.command import Measured, fit_rows
from kvcache_sim.extras.calibrate.fit import fit_runs, fit_step_time, predict_ms
from kvcache_sim.extras.calibrate.rows import IterationRows, phase_errors
from kvcache_sim.extras.calibrate.runs import runs_of, seen_late
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_times import load_step_time
from support.timed_rows import timed

#: Decode steps replay a graph; a chunk of more than 512 tokens takes 30 ms to launch.
LAUNCHED = ParametricStepTime(
    base_points=((1.0, 9.0), (512.0, 20.0), (513.0, 40.0), (4096.0, 150.0)),
    decode_points=((1.0, 6.0), (64.0, 8.0)),
    pairs_ms_per_million=1.0,
    kv_ms_per_thousand=0.04,
    kv_mixed_ms_per_thousand=0.04,
)


def steps(chunks: list[int]) -> IterationRows:
    """Steps of four sequences and a chunk of each number of tokens, 1 ms each."""
    new = np.array(chunks, float)
    one = np.ones(len(new))
    return IterationRows(new, (new > 0) * one, 0 * one, 4 * one, 4000 * one, 1000 * one, one, one)


def engine_rows(count: int, name: str) -> IterationRows:
    """Steps in an engine's order: decode steps, one in four with a chunk, at times several in a row."""
    draw = stream(11, name)
    new = np.where(draw.random(count) < 0.25, draw.integers(1, 4000, count), 0).astype(float)
    n = draw.integers(1, 65, count).astype(float)
    mean = draw.integers(10, 8000, count)
    past = np.where(new > 0, draw.integers(0, 20_000, count), 0).astype(float)
    ones = np.ones(count)
    return timed(IterationRows(new, (new > 0) * ones, past, n, n * mean, mean * ones, ones, ones), LAUNCHED)


def seen_late_by(rows: IterationRows, share: float) -> IterationRows:
    """The same steps where each chunk's first ``share`` was spent launching it, in the step before."""
    own = rows.iter_ms.copy()
    moved = np.where(rows.prefill_tokens > 0, share * own, 0.0)
    moved[0] = 0.0
    return replace(rows, iter_ms=own - moved + np.append(moved[1:], 0.0))


def test_a_step_and_the_chunks_that_follow_it_make_a_run():
    runs = runs_of(steps([0, 0, 9, 0, 9, 9, 0, 0]))
    assert [runs.begins.tolist(), runs.rows, len(runs)] == [[0, 1, 3, 6, 7], 8, 5]
    assert runs.sums(np.arange(8.0)).tolist() == [0, 3, 12, 6, 7]
    assert runs.rowwise(np.arange(5.0)).tolist() == [0, 1, 1, 2, 2, 2, 3, 4]
    chosen = np.array([True, False, True, False, True])
    assert runs.mask(chosen).tolist() == [True, False, False, True, True, True, False, True]
    left = runs.take(chosen)
    assert [left.begins.tolist(), left.rows] == [[0, 1, 4], 5]
    phases = runs.totals(steps([0, 0, 9, 0, 9, 9, 0, 0])).phases()
    assert phases["mixed"].tolist() == [False, True, True, False, False]
    assert runs_of(steps([9] * 17)).begins.tolist() == [0, 8, 16], "many chunks in a row are cut"


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_sums_find_the_model_behind_times_that_are_seen_late(share):
    """Rows by themselves charge a chunk to the decode step before it: off by tens of per cent."""
    late = seen_late_by(engine_rows(2500, "late"), share)
    found = fit_runs(late, runs_of(late))
    fresh = engine_rows(600, "fresh")
    by_sums = {e.phase: e.mape for e in phase_errors(fresh, predict_ms(found, fresh))}
    by_rows = {e.phase: e.mape for e in phase_errors(fresh, predict_ms(fit_step_time(late), fresh))}
    assert max(by_sums.values()) < 2.5
    assert by_rows["mixed"] > 15
    assert found.kv_ms_per_thousand == pytest.approx(0.04, rel=0.05)


def test_a_file_that_says_or_shows_that_times_are_late_is_fitted_and_checked_by_its_runs(tmp_path, capsys):
    rows = seen_late_by(engine_rows(1500, "file"), 0.8)
    names = "prefill_tokens,prefill_requests,prefill_past_kv_tokens,decode_requests,decode_kv_tokens,decode_kv_max"
    columns = (rows.prefill_tokens, rows.prefill_requests, rows.past_tokens, rows.decode_sequences)
    columns = (*columns, rows.decode_kv_tokens, rows.decode_max_kv_tokens)
    cells = [[*map(int, row), ms] for *row, ms in zip(*columns, rows.iter_ms.tolist(), strict=True)]
    plain, seen = tmp_path / "plain.csv", tmp_path / "seen.csv"
    plain.write_text("\n".join([f"{names},iter_ms", *(",".join(map(str, row)) for row in cells)]))
    both = (",".join(map(str, [*row, row[-1]])) for row in cells)
    seen.write_text("\n".join([f"{names},seen_ms,iter_ms", *both]))
    errors = []
    for path in (plain, seen):
        fitted = fit_rows(Measured(path, {}), None)
        errors.append({e.phase: e.mape for e in phase_errors(*fitted.judged())})
        assert "sums of" in fitted.how
    assert errors[0] == errors[1]
    assert max(errors[1].values()) < 2.5

    out = tmp_path / "mine.toml"
    assert kvsim(["calibrate", "fit", str(seen), "-o", str(out)]) == 0
    capsys.readouterr()
    few = tmp_path / "few.csv"  # too few chunks to show that they are late: the set says so
    few.write_text("\n".join(plain.read_text().splitlines()[:40]))
    for path in (plain, seen, few):
        assert kvsim(["calibrate", "check", str(path), str(out)]) == 0
        printed = capsys.readouterr()
        assert "errors of sums" in printed.err
        assert max(float(line.split()[2]) for line in printed.out.splitlines()[1:]) < 2.5
    by_rows = phase_errors(rows, predict_ms(load_step_time(str(out)), rows))
    assert max(error.mape for error in by_rows) > 50


def seen_late_of(chunks: list[int], times: list[float]) -> bool:
    return seen_late(replace(steps(chunks), iter_ms=np.array(times, float)))


def test_late_is_more_than_twice_as_long_before_a_chunk_past_the_graphs_by_hand():
    # four sequences decode in each chunk's step: 508 tokens fit a graph, 509 do not
    for chunk, before_ms, late in ((509, 2.1, True), (509, 1.9, False), (508, 2.1, False)):
        assert seen_late_of([0, chunk, 0, 0], [before_ms, 9, 1, 1]) is late
    # steps before any chunk are no measure of the others, not even before one that a graph holds
    assert seen_late_of([0, 600] * 5 + [0], [3, 9] * 5 + [1])
    assert seen_late_of([0, 600, 0, 20, 0, 20, 0], [3, 9, 5, 9, 5, 9, 1])
    # a chunk before a chunk says nothing, and one step that was long by chance not either
    assert not seen_late_of([0, 600, 600, 600, 0, 0], [1, 50, 50, 9, 1, 1])
    assert not seen_late_of([0, 600] * 3 + [0], [1, 9, 1, 9, 100, 9, 1])
