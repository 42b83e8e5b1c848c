"""Step tables and their residuals in closed form: rows, factors, and straight lines between points."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.model.adjusted import ScaledStepTime
from kvcache_sim.model.residual_grid import ResidualGrid, Residuals
from kvcache_sim.model.shared_time import SharedTime
from kvcache_sim.model.stated_errors import Factors, StepErrors
from kvcache_sim.model.step_time import StepBatch, StepTimeTable
from kvcache_sim.scenario import step_time_source as sources
from support.timed_rows import rows_of


def a_table() -> StepTimeTable:
    """Every term of a step, with numbers of different size."""
    base = np.arange(600, dtype=np.int64) * 1_000 + 3_000_000
    grid = ResidualGrid(
        (1, 4, 16), (10, 100, 400), ((5_000, -3_000, 9_000), (1_000, 2_000, 7_000), (0, 4_000, 90))
    )
    residuals = Residuals(grid, grid.times(2.0), grid.times(-3.0))
    return StepTimeTable(
        base, base[:64] - 1_000_000, pair_half_fs=7 * 10**5, kv_decode_fs=4 * 10**8, kv_mixed_fs=5 * 10**8,
        sequence_fs=2 * 10**9, past_fs=3 * 10**7, spread_decode_fs=10**8, spread_mixed_fs=3 * 10**8, scan_fs=2 * 10**9,
        idle_fs=10**6, alongside_fs=10**10, least_kv_tokens=64, least_query_tokens=32,
        longest_fs=np.arange(64, dtype=np.int64) * 10**8, unsplit_sequences=9, unsplit_fs=2 * 10**9,
        unsplit_hidden_fs=6 * 10**9, past_base_ns=base + 500_000, residuals=residuals, launch_ns=4_200_000,
        captured_tokens=256, pieces_launch_ns=3_600_000, graph_launch_ns=2_200_000, launch_sequence_ns=9_000,
        tail_ns=30_000, tail_sequence_ns=2_000,
    )  # fmt: skip


def test_rows_take_as_long_as_steps_with_every_term_of_a_table():
    draw, count = np.random.default_rng(11), 500
    new = draw.integers(1, 500, count) * (draw.random(count) < 0.6)
    past = draw.integers(1, 500, count) * (new > 0) * (draw.random(count) < 0.6)
    n = np.where(new > 0, draw.integers(0, 40, count), draw.integers(1, 40, count))
    each = draw.integers(1, 300, count)
    longest = (each * draw.choice([1, 3, 12], count)) * (n > 0)
    kv = np.where(n > 1, n * each, longest)
    rows = rows_of(count, prefill_tokens=new, prefill_requests=new > 0, past_tokens=past, decode_sequences=n,
                   decode_kv_tokens=kv, decode_max_kv_tokens=longest)  # fmt: skip
    table = a_table()
    for shown in (table, replace(table, launch_ns=0, pieces_launch_ns=0, graph_launch_ns=0, tail_ns=0),
                  replace(table, scan_fs=0, longest_fs=np.zeros(0, np.int64), past_base_ns=np.zeros(0, np.int64))):  # fmt: skip
        found = predict_ms(shown, rows)
        wanted = []
        for k in range(count):
            chunks = ((int(new[k]), int(past[k])),) if new[k] else ()
            wanted.append(shown.step(StepBatch(chunks, int(n[k]), int(kv[k]), int(longest[k]))) / 1e6)
        assert found == pytest.approx(wanted, abs=2e-5)


@pytest.mark.parametrize("part", ["decode", "chunk", "mixed_kv", "launch"])
def test_a_factor_scales_its_part_of_a_step_alone(part):
    table = replace(
        a_table(), residuals=Residuals(), shared=SharedTime(2, np.zeros(0, np.int64), np.zeros(1, np.int64))
    )
    scaled = ScaledStepTime(table).times(part, 3.0).table(500, 63)
    decodes, both = StepBatch((), 7, 900, 200), StepBatch(((40, 60),), 7, 900, 200)
    alone = StepBatch(((40, 60),))
    kernels = {batch: scaled.kernels(batch) / table.kernels(batch) for batch in (decodes, both, alone)}
    launches = [scaled.launch(batch) / table.launch(batch) for batch in (decodes, both)]
    assert launches == [3 if part == "launch" else 1] * 2
    assert kernels[decodes] == pytest.approx(3 if part == "decode" else 1, abs=1e-5)
    assert kernels[alone] == pytest.approx(3 if part == "chunk" else 1, abs=1e-5)
    if part == "chunk":
        assert kernels[both] == pytest.approx(3, abs=1e-5)
    if part == "mixed_kv":
        assert scaled.kernels(both) - table.kernels(both) == pytest.approx(2 * (900 * 500 + 500 * 300), abs=2)
    assert scaled.tail(both) == table.tail(both)


def test_residuals_lie_on_straight_lines_and_stay_past_the_borders():
    grid = a_table().residuals.kv
    for count, tokens in (
        (1, 10),
        (4, 100),
        (16, 400),
        (2, 10),
        (4, 37),
        (9, 250),
        (0, 5),
        (99, 999),
        (16, 11),
    ):
        c, t = min(max(count, 1), 16), min(max(tokens, 10), 400)
        (c0, c1), (t0, t1) = (
            next(pair for pair in pairwise(axis) if pair[0] <= at <= pair[1])
            for at, axis in ((c, grid.counts), (t, grid.tokens))
        )
        i, j, u, v = grid.counts.index(c0), grid.tokens.index(t0), (c - c0) / (c1 - c0), (t - t0) / (t1 - t0)
        low, high = (row[j] * (1 - v) + row[j + 1] * v for row in (grid.ns[i], grid.ns[i + 1]))
        wanted = low * (1 - u) + high * u
        assert grid.at(count, tokens) == math.floor(wanted + 1e-9)
        assert grid.each(np.array([float(count)]), np.array([float(tokens)]))[0] == pytest.approx(wanted)
    assert [grid.axes_and_ns()[2][:4], grid.times(0.5).ns[0]] == [
        [5000, -3000, 9000, 1000],
        (2500, -1500, 4500),
    ]
    both = Residuals(grid, grid.times(2.0), grid).times(3.0, 0.5)
    assert [own.ns[1][0] for own in (both.kv, both.beside, both.past)] == [3000, 1000, 500]
    assert [both.of_decodes(n, 40, chunk) for n, chunk in ((0, True), (4, False), (4, True))] == [
        0,
        3000,
        1000,
    ]
    assert [ResidualGrid().at(3, 3), ResidualGrid().each(np.ones(2), np.ones(2)).tolist()] == [0, [0, 0]]
    shared = SharedTime(2, np.array([0, 7, 8]), np.array([0, 10, 20, 30, 40, 50]))
    assert shared.even(5).tolist() == [0, 7, 8, 50, 50]
    assert SharedTime(2, total_ns=np.array([0, 10, 20])).even(3).tolist() == [0, 20, 20]
    assert [ns.tolist() for ns in (shared.times(0.5).padded_ns, shared.times(2.0).total_ns)] == [
        [0, 4, 4], [0, 20, 40, 60, 80, 100]
    ]  # fmt: skip


def test_the_sources_of_a_runs_step_times_and_the_errors_that_they_state(monkeypatch):
    """The farther end of a factor is its error; of several sources one without an error leaves none."""
    parts = {
        "linear:base=5ms": None,
        "x/c.csv.gz": StepErrors(Factors(0.8, 1.1), Factors(0.9, 1.3), None, "rows"),
        "x/own": StepErrors(None, Factors(0.5, 1.2), None, "chunks"),
        "roofline:llama-3-8b@h100:tp2": StepErrors(None, None, None, "none"),
    }
    monkeypatch.setattr(sources, "stated_step_errors", parts.get)
    found = [sources.step_time_source(name) for name in parts]
    assert [own.words for own in found] == [
        "given costs linear:base=5ms", "measured iterations c.csv.gz", "fitted set own",
        "roofline (no measurement of H100 TP2)",
    ]  # fmt: skip
    factors = [own.factors and (own.factors.low, own.factors.high) for own in found]
    assert factors == [None, (0.8, 1.3), (0.5, 1.2), None]
    assert [own.error_percent for own in found] == [None, pytest.approx(30), pytest.approx(100), None]

    def summary(*names, instant=()):
        machines = [SimpleNamespace(replica=SimpleNamespace(step_time=name, instant=name in instant)) for name in names]  # fmt: skip
        monkeypatch.setattr(sources, "build_machines", lambda model, tree: machines)
        return sources.summarize_step_times(SimpleNamespace(model=None, tree=None)).get("step_times")

    no_error, csv, own, _ = parts
    assert summary(csv, instant=(csv,)) is None
    assert summary(csv, csv, no_error, instant=(no_error,)) == {
        "source": "measured iterations c.csv.gz", "error_percent": pytest.approx(30), "error_from": "rows",
        "factor_low": 0.8, "factor_high": 1.3,
    }  # fmt: skip
    both = "measured iterations c.csv.gz (×0.8–1.3): rows; fitted set own (×0.5–1.2): chunks"
    assert summary(csv, own) == {
        "source": "measured iterations c.csv.gz; fitted set own", "error_percent": pytest.approx(100),
        "error_from": both, "factor_low": 0.5, "factor_high": 1.3,
    }  # fmt: skip
    some = summary(csv, no_error)
    assert some["error_from"].endswith("; given costs linear:base=5ms: given, not measured: no error")
    assert (some["error_percent"], some["factor_low"], some["factor_high"]) == (None, None, None)
