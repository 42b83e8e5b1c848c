"""The table of a step's time: each term by hand, grids of residuals, rows, factors, and the core's own table."""

import math
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import StoreError
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.model.step_time import StepBatch, StepTimeTable
from kvcache_sim.serving.settings import ReplicaSettings
from kvcache_sim.serving.step_tables import step_table
from kvcache_sim.simulation import RunOptions, simulate
from support.clusters import cluster
from support.product.models import ResidualGrid, Residuals, ScaledStepTime, SharedTime
from support.timed_rows import rows_of
from support.traces import random_trace

TEN = np.array([0, 10, 10, 10, 10])
EMPTY = np.zeros(0, np.int64)
GRID = ResidualGrid((2, 4, 8), (0, 3), ((-9, 0), (3, 6), (30, 33)))


def every_term(tokens: int = 600) -> StepTimeTable:
    """Every term of a step, with numbers of different size."""
    base = np.arange(tokens, dtype=np.int64) * 1_000 + 3_000_000
    kv = ((5_000, -3_000, 9_000), (1_000, 2_000, 7_000), (0, 4_000, 90))
    grid = ResidualGrid((1, 4, 16), (10, 100, 400), kv)
    return StepTimeTable(
        base,
        base[:64] - 1_000_000,
        pair_half_fs=7 * 10**5,
        kv_decode_fs=4 * 10**8,
        kv_mixed_fs=5 * 10**8,
        sequence_fs=2 * 10**9,
        past_fs=3 * 10**7,
        spread_decode_fs=10**8,
        spread_mixed_fs=3 * 10**8,
        scan_fs=2 * 10**9,
        idle_fs=10**6,
        alongside_fs=10**10,
        least_kv_tokens=64,
        least_query_tokens=32,
        longest_fs=np.arange(64, dtype=np.int64) * 10**8,
        unsplit_sequences=9,
        unsplit_fs=2 * 10**9,
        unsplit_hidden_fs=6 * 10**9,
        past_base_ns=base + 500_000,
        residuals=Residuals(grid, grid.times(2.0), grid.times(-3.0)),
        launch_ns=4_200_000,
        captured_tokens=256,
        pieces_launch_ns=3_600_000,
        graph_launch_ns=2_200_000,
        launch_sequence_ns=9_000,
        tail_ns=30_000,
        tail_sequence_ns=2_000,
    )


def test_the_longest_sequence_alone_is_a_floor_under_attention():
    """In decode and in mixed steps."""
    longest = np.array([0, 500_000, 3_000_000])
    table = StepTimeTable(TEN, TEN[:3], kv_decode_fs=1_000_000, kv_mixed_fs=2_000_000, longest_fs=longest)
    assert table.step(StepBatch((), 2, 20, 10)) == 10 + 30
    assert table.step(StepBatch((), 2, 20, 5)) == 10 + 20
    assert table.step(StepBatch(((1, 0),), 2, 20, 10)) == 10 + 40


def test_tiles_and_the_scan_on_figures_by_hand():
    """A sequence's KV counts as 64 tokens, a chunk as 4 against its past; one core scans the longest KV."""
    kv = {"pair_half_fs": 500_000, "kv_decode_fs": 1_000_000, "kv_mixed_fs": 1_000_000}
    least = {"least_kv_tokens": 64, "least_query_tokens": 4}
    table = StepTimeTable(TEN, TEN[:3], **kv, **least, scan_fs=3_000_000)
    assert table.step(StepBatch((), 2, 20, 10)) == 10 + 128
    assert table.step(StepBatch((), 2, 140, 70)) == 10 + 140
    assert table.step(StepBatch(((2, 100),))) == 10 + 402
    assert table.step(StepBatch(((2, 0),))) == 10 + 6
    assert table.step(StepBatch(((1, 0), (1, 5)), 1, 90, 90)) == 10 + 270


def test_from_a_number_of_sequences_one_block_reads_the_longest():
    """From three sequences on the longest is read alone past 1.5 times the mean, a chunk or not."""
    unsplit = {"unsplit_sequences": 3, "unsplit_fs": 2_000_000, "unsplit_hidden_fs": 3_000_000}
    table = StepTimeTable(TEN, TEN[:4], kv_decode_fs=1_000_000, kv_mixed_fs=1_500_000, **unsplit)
    assert table.step(StepBatch((), 2, 60, 50)) == table.step(StepBatch((), 3, 60, 30)) == 10 + 60
    assert table.step(StepBatch((), 3, 60, 40)) == 10 + 60 + 20
    assert table.step(StepBatch(((1, 0),), 3, 60, 40)) == 10 + 90
    assert table.step(StepBatch((), 3, 60, 58)) == table.step(StepBatch(((1, 0),), 3, 60, 58)) == 10 + 60 + 56


def test_idle_tiles_cost_a_decode_sequence_for_each_token_of_the_chunks():
    """7 ns for each of two sequences and each of two tokens; nothing in a pure decode step."""
    table = StepTimeTable(TEN, TEN[:3], idle_fs=7_000_000)
    assert table.step(StepBatch(((2, 0),), 2, 200, 100)) == 10 + 7 * 2 * 2
    assert table.step(StepBatch(((1, 0), (1, 0)), 2, 200, 100)) == 10 + 7 * 2 * 2
    assert table.step(StepBatch((), 2, 200, 100)) == 10


def test_a_chunks_past_and_the_decodes_in_its_step_in_closed_form():
    """A separate base if any chunk has a past; 3 ns for decodes in a chunk's step, however many."""
    base, past = np.array([0, 10, 20, 30, 40]), np.array([0, 7, 9, 8, 50])
    table = StepTimeTable(base, np.array([0, 5, 6]), alongside_fs=3_000_000, past_base_ns=past)
    assert table.step(StepBatch(((3, 0),))) == 30
    assert table.step(StepBatch(((3, 1),))) == table.step(StepBatch(((2, 0), (1, 1)))) == 8
    assert table.step(StepBatch((), 2)) == 6
    assert table.step(StepBatch(((2, 0),), 1)) == 33
    assert table.step(StepBatch(((2, 1),), 1)) == 11
    assert table.step(StepBatch(((2, 1),), 2)) == 53
    with pytest.raises(StoreError, match="a base of another length"):
        step_table(replace(table, past_base_ns=past[:2]))


def test_what_is_not_linear_is_read_from_grids_by_hand():
    """By sequences and the KV of one, rounded down; for each chunk with a past by its tokens and that."""
    by_hand = {(2, 0): -9, (2, 1): -6, (1, 2): -3, (3, 0): -3, (3, 1): -1, (4, 3): 6, (6, 1): 17, (8, 9): 33}
    assert {at: GRID.at(*at) for at in by_hand} == by_hand
    past = ResidualGrid((1, 2), (1, 11), ((0, 100), (0, 200)))
    residuals = Residuals(GRID, GRID.times(2), past)
    table = StepTimeTable(np.array([0, *[50] * 9]), np.array([0, *[40] * 8]), residuals=residuals)
    assert table.step(StepBatch()) == 0
    assert table.step(StepBatch((), 2, 1, 1)) == 40 - 9, "1 // 2 tokens of KV each"
    assert table.step(StepBatch((), 4, 12, 9)) == 46
    assert table.step(StepBatch(((2, 0),))) == 50
    assert table.step(StepBatch(((2, 6), (1, 11), (2, 0)), 4, 0, 0)) == 50 + 100 + 100 + 6
    assert replace(table, decode_base_ns=np.array([0, *[5] * 8])).step(StepBatch((), 2)) == 0, "no time less"
    twice = ScaledStepTime(table, decode=2.0, chunk=3.0).table(9, 8)
    assert twice.step(StepBatch((), 4, 12, 9)) == 2 * 46
    assert twice.step(StepBatch(((2, 6),))) == 3 * (50 + 100)


@given(st.data())
def test_a_grid_is_lines_between_its_points(data):
    axis = st.lists(st.integers(1, 70_000), min_size=2, max_size=5, unique=True).map(sorted).map(tuple)
    counts, tokens = data.draw(axis), data.draw(axis)
    times = st.tuples(*[st.integers(-(10**9), 10**9)] * len(tokens))
    grid = ResidualGrid(counts, tokens, tuple(data.draw(times) for _ in counts))
    count, token = data.draw(st.integers(0, 80_000)), data.draw(st.integers(0, 80_000))
    by_count = [np.interp(token, tokens, row) for row in grid.ns]
    at_least = math.floor(round(float(np.interp(count, counts, by_count)), 3))
    assert abs(grid.at(count, token) - at_least) <= 1
    assert grid.each(np.array([count]), np.array([token]))[0] == pytest.approx(at_least, abs=1.01)
    for c, row in zip(counts, grid.ns, strict=True):
        assert [grid.at(c, t) for t in tokens] == list(row)


SMALL = [(1, 10), (4, 100), (16, 400), (2, 10), (4, 37), (9, 250), (0, 5), (99, 999), (16, 11)]


@pytest.mark.parametrize(("count", "tokens"), SMALL)
def test_a_grid_of_small_numbers_is_rounded_down(count, tokens):
    grid = every_term().residuals.kv
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


def test_grids_are_scaled_each_by_its_factor():
    grid = every_term().residuals.kv
    assert grid.axes_and_ns()[2][:4] == [5000, -3000, 9000, 1000]
    assert grid.times(0.5).ns[0] == (2500, -1500, 4500)
    both = Residuals(grid, grid.times(2.0), grid).times(3.0, 0.5)
    assert [own.ns[1][0] for own in (both.kv, both.beside, both.past)] == [3000, 1000, 500]
    decodes = [both.of_decodes(n, 40, chunk) for n, chunk in ((0, True), (4, False), (4, True))]
    assert decodes == [0, 3000, 1000]
    assert [ResidualGrid().at(3, 3), ResidualGrid().each(np.ones(2), np.ones(2)).tolist()] == [0, [0, 0]]


def test_work_that_ranks_share_is_as_of_even_ranks_and_scaled():
    shared = SharedTime(2, np.array([0, 7, 8]), np.array([0, 10, 20, 30, 40, 50]))
    assert shared.even(5).tolist() == [0, 7, 8, 50, 50]
    assert SharedTime(2, total_ns=np.array([0, 10, 20])).even(3).tolist() == [0, 20, 20]
    assert shared.times(0.5).padded_ns.tolist() == [0, 4, 4]
    assert shared.times(2.0).total_ns.tolist() == [0, 20, 40, 60, 80, 100]


NO_LAUNCH = {"launch_ns": 0, "pieces_launch_ns": 0, "graph_launch_ns": 0, "tail_ns": 0}


@pytest.mark.parametrize(
    "without", [{}, NO_LAUNCH, {"scan_fs": 0, "longest_fs": EMPTY, "past_base_ns": EMPTY}]
)
def test_rows_take_as_long_as_steps_with_every_term_of_a_table(without):
    table, draw, count = replace(every_term(), **without), np.random.default_rng(11), 500
    new = draw.integers(1, 500, count) * (draw.random(count) < 0.6)
    past = draw.integers(1, 500, count) * (new > 0) * (draw.random(count) < 0.6)
    n = np.where(new > 0, draw.integers(0, 40, count), draw.integers(1, 40, count))
    each = draw.integers(1, 300, count)
    longest = (each * draw.choice([1, 3, 12], count)) * (n > 0)
    kv = np.where(n > 1, n * each, longest)
    prompts = {"prefill_tokens": new, "prefill_requests": new > 0, "past_tokens": past}
    rows = rows_of(count, **prompts, decode_sequences=n, decode_kv_tokens=kv, decode_max_kv_tokens=longest)
    steps = zip(*(column.tolist() for column in (new, past, n, kv, longest)), strict=True)
    wanted = [
        table.step(StepBatch(((chunk, before),) * (chunk > 0), *decodes)) / 1e6
        for chunk, before, *decodes in steps
    ]
    assert predict_ms(table, rows) == pytest.approx(wanted, abs=2e-5)


@pytest.mark.parametrize("part", ["decode", "chunk", "mixed_kv", "launch"])
def test_a_factor_scales_its_part_of_a_step_alone(part):
    none = SharedTime(2, EMPTY, np.zeros(1, np.int64))
    table = replace(every_term(), residuals=Residuals(), shared=none)
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


TERMS = [field.name for field in fields(StepTimeTable) if field.type == "int"]


@pytest.mark.parametrize("term", TERMS)
def test_every_integer_of_a_table_reaches_the_core(term):
    """The core and the specification take as long as each other, and not as long as before."""
    table = replace(every_term(1025), captured_tokens=96, longest_fs=EMPTY)
    unsplit = 2 if term.startswith("unsplit") else 99
    table = replace(table, unsplit_sequences=unsplit, unsplit_hidden_fs=10**9)
    if term != "scan_fs":
        table = replace(table, scan_fs=0)
    if not term.startswith(("launch", "pieces", "graph", "captured", "tail")):
        table = replace(table, **NO_LAUNCH, launch_sequence_ns=0, tail_sequence_ns=0)
    settings, trace = cluster((160,)), random_trace(3, 60)
    found = {}
    for engine in ("native", "spec"):
        for number in (getattr(table, term), 3 * getattr(table, term)):
            own = replace(
                settings.machines[0],
                step_time=replace(table, **{term: number}),
                replica=ReplicaSettings(512, 16),
            )
            made = simulate(replace(settings, machines=(own,)), trace, options=RunOptions(engine=engine))
            found.setdefault(number, []).append(made.requests["finish_ns"].tolist())
    (native, spec), (other, other_spec) = found.values()
    assert (native, other) == (spec, other_spec)
    assert native != other


@pytest.mark.parametrize("which", ["kv", "beside", "past"])
def test_a_grid_that_does_not_rise_is_refused_by_the_core(which):
    for grid in (replace(GRID, counts=(2, 2, 8)), replace(GRID, tokens=(3,)), replace(GRID, ns=())):
        with pytest.raises(StoreError, match="two axes that rise"):
            step_table(StepTimeTable(TEN, TEN, residuals=Residuals(**{which: grid})))
