"""Fits to the sums of runs: how rows are cut, and a model found again behind times that are seen late."""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.base.rng import stream
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate import fit
from kvcache_sim.extras.calibrate.command import Measured, fit_rows
from kvcache_sim.extras.calibrate.fit import fit_runs, fit_step_time, predict_ms
from kvcache_sim.extras.calibrate.rows import IterationRows, phase_errors, read_iterations
from kvcache_sim.extras.calibrate.runs import Runs, runs_of, seen_late, single_steps, usual_ms
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_times import load_step_time
from support.timed_rows import random_rows, timed

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
    values = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    return IterationRows(**values | {"iter_ms": own - moved + np.append(moved[1:], 0.0)})


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


def test_many_chunks_in_a_row_are_cut_and_a_first_chunk_begins_a_run():
    assert runs_of(steps([9] * 17)).begins.tolist() == [0, 8, 16]
    assert runs_of(steps([0, *[9] * 8, 0])).begins.tolist() == [0, 8, 9]


def test_runs_of_one_step_are_the_rows_themselves():
    rows = engine_rows(300, "alone")
    alone = single_steps(rows)
    assert alone.sums(rows.iter_ms) is rows.iter_ms
    same = alone.totals(rows)
    assert all((getattr(same, name) == getattr(rows, name)).all() for name in rows.__dataclass_fields__)


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
    counts = [",".join(str(int(cell)) for cell in row) for row in zip(*columns, strict=True)]
    plain, seen = tmp_path / "plain.csv", tmp_path / "seen.csv"
    plain.write_text(
        "\n".join([f"{names},iter_ms", *(f"{c},{ms}" for c, ms in zip(counts, rows.iter_ms, strict=True))])
    )
    both = (f"{c},{ms},{ms}" for c, ms in zip(counts, rows.iter_ms, strict=True))
    seen.write_text("\n".join([f"{names},seen_ms,iter_ms", *both]))
    assert len(read_iterations(seen)) == len(rows)
    errors = {}
    for path in (plain, seen):
        fitted = fit_rows(Measured(path, {}), None)
        errors[path.stem] = {e.phase: e.mape for e in phase_errors(*fitted.judged())}
        assert "sums of" in fitted.how
    assert errors["seen"] == errors["plain"]
    assert max(errors["seen"].values()) < 2.5

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


def test_steps_are_seen_late_where_launches_lengthen_the_decode_steps_before_them():
    rows = engine_rows(1500, "found")
    assert [seen_late(rows), seen_late(seen_late_by(rows, 0.8))] == [False, True]
    assert not seen_late(rows.take(rows.prefill_tokens == 0))
    assert not seen_late(rows.take(rows.prefill_tokens > 0))


def test_a_run_is_the_sum_of_its_steps_on_the_gpus_of_its_first():
    chunks = [0, 9, 0, 9, 9]
    rows = steps(chunks)
    values = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    rows = IterationRows(**values | {"tensor_parallel": np.array([1.0, 1, 2, 2, 2])})
    total = runs_of(rows).totals(rows)
    assert total.tensor_parallel.tolist() == [1, 2]
    assert total.prefill_tokens.tolist() == [9, 18]
    assert total.decode_sequences.tolist() == [8, 12]
    assert total.decode_max_kv_tokens.tolist() == [2000, 3000]
    assert total.iter_ms.tolist() == [2, 3]


def seen_late_of(chunks: list[int], times: list[float]) -> bool:
    rows = steps(chunks)
    values = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    return seen_late(IterationRows(**values | {"iter_ms": np.array(times, float)}))


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


def test_late_is_a_tenth_of_long_chunks_that_appear_shorter_than_a_decode_step():
    usual = [*[9.0] * 9, 0.5]
    for times, late in ((usual, False), ([*usual[1:], 0.5], True), ([*usual[1:], 1.0], False)):
        assert seen_late_of([0, *[600] * 10], [1, *times]) is late
        assert not seen_late_of([0, *[400] * 10], [1, *times])


def test_no_runs_of_no_rows():
    assert len(Runs(np.zeros(0, np.intp), 0)) == 0


def test_times_that_scatter_are_met_in_their_mean(monkeypatch):
    """Errors relative to what was measured weigh the short times of a scatter most: a fit stays below its
    mean."""
    rows = seen_late_by(engine_rows(2500, "scattered"), 0.8)
    values = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    scatter = stream(11, "scatter").lognormal(0.0, 0.2, len(rows))
    rows = IterationRows(**values | {"iter_ms": rows.iter_ms * scatter})
    monkeypatch.setattr(fit, "_KEY_TILES", ())
    monkeypatch.setattr(fit, "_QUERY_TILES", ())

    def off() -> float:
        reported = predict_ms(fit_runs(rows, runs_of(rows)), rows)
        return float(reported.sum() / rows.iter_ms.sum() - 1)

    assert abs(off()) < 0.01
    monkeypatch.setattr(fit, "_OWN_ROUNDS", 0)
    assert off() < -0.02


@pytest.mark.parametrize("count", [1, 2, 30, 31, 32, 33, 90])
def test_the_usual_time_is_the_median_of_the_nearest_of_the_same_kind(count):
    """31 rows around one's own by tokens, then KV; at both ends the outermost 31."""
    rows = replace(random_rows(count), iter_ms=np.random.default_rng(count).permutation(count) + 1.0)
    found = usual_ms(rows)
    for chunked in (True, False):
        own = np.flatnonzero((rows.prefill_tokens > 0) == chunked).tolist()
        own.sort(
            key=lambda k: (
                rows.prefill_tokens[k] + rows.decode_sequences[k], rows.decode_kv_tokens[k], rows.past_tokens[k]
            )
        )  # fmt: skip
        for at, k in enumerate(own):
            first = min(max(at - min(31, len(own)) // 2, 0), max(len(own) - 31, 0))
            assert found[k] == np.median(rows.iter_ms[own[first : first + 31]])
