"""Properties of every step-time model, and of how a model is named."""

import math
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim import _core
from kvcache_sim.base.errors import StoreError, UsageError
from kvcache_sim.model.adjusted import ScaledStepTime
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import (
    ParametricStepTime,
    capture_sizes,
    padded_tokens,
    parametric_step_time,
)
from kvcache_sim.model.residual_grid import ResidualGrid, Residuals
from kvcache_sim.model.stated_errors import stated_step_errors
from kvcache_sim.model.step_time import StepBatch, StepTimeTable
from kvcache_sim.model.step_times import (
    DEFAULT_STEP_TIME,
    MeasuredOn,
    files_named_in,
    load_step_time,
    measured_on,
    nearest_source,
    step_time_names,
    with_absolute_files,
)
from kvcache_sim.serving.step_tables import step_table
from kvcache_sim.simulation import simulate
from step_batches import batches, more_of_one_thing
from support.clusters import cluster
from support.traces import random_trace


@pytest.mark.parametrize("name", step_time_names())
@given(batch=batches())
def test_a_shipped_set_never_falls_when_an_argument_rises(name, batch):
    table = load_step_time(name).table(16_384, 512)
    time = table.step(batch)
    assert time >= 0
    for bigger in more_of_one_thing(batch):
        assert table.step(bigger) >= time, bigger


@pytest.mark.parametrize("name", step_time_names())
def test_an_empty_step_takes_no_time_and_any_other_some(name):
    model = load_step_time(name)
    assert model.step(StepBatch()) == 0
    assert model.step(StepBatch(((1, 0),))) > 1_000_000
    assert model.step(StepBatch((), 1, 1, 1)) > 1_000_000


@pytest.mark.parametrize("name", step_time_names())
@given(batch=batches())
def test_step_reads_the_table(name, batch):
    model = load_step_time(name)
    table = model.table(16_384, 512)
    assert model.step(batch) == table.step(batch)


def test_steps_are_not_additive():
    """Two prompts in one step read the weights once."""
    model = load_step_time(DEFAULT_STEP_TIME)
    one = model.step(StepBatch(((32, 0),)))
    assert model.step(StepBatch(((32, 0), (32, 0)))) < 1.5 * one


def test_padding_follows_the_captured_sizes():
    sizes = capture_sizes(512).tolist()
    assert (len(sizes), sizes[:5]) == (3 + 31 + 17, [1, 2, 4, 8, 16])
    assert set(np.diff(sizes[3:35])) == {8}
    assert set(np.diff(sizes[34:])) == {16}
    padded = padded_tokens(512, 600)
    assert padded[[0, 1, 2, 3, 5, 9, 17, 249, 257, 500, 512]].tolist() == [
        0,
        1,
        2,
        4,
        8,
        16,
        24,
        256,
        272,
        512,
        512,
    ]
    assert padded[[513, 600]].tolist() == [513, 600]
    assert (padded_tokens(0, 9) == np.arange(10)).all()


def test_unequal_lengths_cost_the_share_alpha():
    model = ParametricStepTime(
        5.0, 0.01, 2.0, kv_ms_per_thousand=1.0, kv_mixed_ms_per_thousand=1.0, spread=0.05
    )
    equal = model.step(StepBatch((), 4, 4000, 1000))
    uneven = model.step(StepBatch((), 4, 4000, 3000))
    at_max = model.step(StepBatch((), 4, 12_000, 3000))
    assert uneven - equal == pytest.approx(0.05 * (at_max - equal), abs=2)


def test_decode_steps_take_more_and_a_chunk_never_makes_them_shorter():
    """1 ms more without a chunk; with a chunk a sequence takes 0.25 ms more, so that four make up for it."""
    coefficients = {"base_points": [[1, 4.0], [100, 4.0]], "graph_tokens": 0, "decode_extra_ms": 1.0}
    table = parametric_step_time({**coefficients, "sequence_mixed_ms": 0.25}, "f").table(50, 50)
    assert [table.step(StepBatch((), n, n, 1)) for n in (1, 4, 9)] == [5_000_000] * 3
    alongside = [table.step(StepBatch(((1, 0),), n, n, 1)) for n in (1, 2, 4, 8)]
    assert alongside == [5_000_000, 5_250_000, 5_750_000, 6_750_000]
    assert table.step(StepBatch(((1, 0),))) == 4_000_000


def test_base_points_are_joined_by_lines_and_extrapolated_past_the_end():
    """Past 20 tokens it rises as from 10 to 20, not as over the last, perhaps flat, piece."""
    points = [[1, 2.0], [10, 3.0], [16, 5.0], [20, 5.0]]
    model = parametric_step_time({"base_points": points, "graph_tokens": 0}, "f")
    base = model.table(40, 40).base_ns
    assert base[[0, 1, 10, 13, 16, 20, 30, 40]].tolist() == [
        0,
        2_000_000,
        3_000_000,
        4_000_000,
        5_000_000,
        5_000_000,
        7_000_000,
        9_000_000,
    ]


def test_an_unknown_name_has_the_nearest_ones_and_the_command_that_lists_all():
    with pytest.raises(UsageError, match=r"did you mean h100-llama-3\.1-8b-tp1\?") as refusal:
        load_step_time("h100-lama-3-8b-tp1")
    said = str(refusal.value)
    assert "kvsim step-times list" in said
    assert said.index("or roofline:") < said.index("aiconfigurator:") < said.index(" h100-llama-3-8b-tp1")
    assert said.endswith("(composed of kernels)"), "what is farther from real runs comes last"


def test_a_deployment_has_the_source_nearest_to_real_runs():
    """Its own iterations, under a model of the same shapes too; a composed or transferred set is not one."""
    assert nearest_source("llama-3.1-8b", "h100", 1) == "h100-llama-3.1-8b-tp1" == DEFAULT_STEP_TIME
    assert nearest_source("llama-3-8b", "h100", 1) == "h100-llama-3.1-8b-tp1"
    assert nearest_source("qwen3-32b", "b300", 2) == "b300-qwen3-32b-tp2"
    for model, gpu, degree in (("qwen3-32b", "b300", 4), ("qwen3-32b", "h100", 2), ("llama-3-8b", "a100", 1)):
        source = nearest_source(model, gpu, degree)
        assert source == f"roofline:{model}@{gpu}" + (f":tp{degree}" if degree > 1 else "")
        assert measured_on(source) == MeasuredOn(model, gpu, degree)


def test_the_native_table_agrees_on_figures_by_hand():
    """The longest sequence alone is a floor under attention, in decode and in mixed steps."""
    table = StepTimeTable(
        np.array([0, 10, 10, 10]),
        np.array([0, 10, 10]),
        kv_decode_fs=1_000_000,
        kv_mixed_fs=2_000_000,
        longest_fs=np.array([0, 500_000, 3_000_000]),
    )
    assert table.step(StepBatch((), 2, 20, 10)) == 10 + 30
    assert table.step(StepBatch((), 2, 20, 5)) == 10 + 20
    assert table.step(StepBatch(((1, 0),), 2, 20, 10)) == 10 + 40


def test_tiles_and_the_scan_on_figures_by_hand():
    """A sequence's KV counts as 64 tokens, a chunk as 4 against its past; one core scans the longest KV."""
    table = StepTimeTable(
        np.array([0, 10, 10, 10, 10]),
        np.array([0, 10, 10]),
        pair_half_fs=500_000,
        kv_decode_fs=1_000_000,
        kv_mixed_fs=1_000_000,
        scan_fs=3_000_000,
        least_kv_tokens=64,
        least_query_tokens=4,
    )
    assert table.step(StepBatch((), 2, 20, 10)) == 10 + 128
    assert table.step(StepBatch((), 2, 140, 70)) == 10 + 140
    assert table.step(StepBatch(((2, 100),))) == 10 + 402
    assert table.step(StepBatch(((2, 0),))) == 10 + 6
    assert table.step(StepBatch(((1, 0), (1, 5)), 1, 90, 90)) == 10 + 270


def test_from_a_number_of_sequences_one_block_reads_the_longest():
    """From three sequences on the longest is read alone past 1.5 times the mean, a chunk or not."""
    table = StepTimeTable(
        np.array([0, 10, 10, 10, 10]),
        np.array([0, 10, 10, 10]),
        kv_decode_fs=1_000_000,
        kv_mixed_fs=1_500_000,
        unsplit_sequences=3,
        unsplit_fs=2_000_000,
        unsplit_hidden_fs=3_000_000,
    )
    assert table.step(StepBatch((), 2, 60, 50)) == table.step(StepBatch((), 3, 60, 30)) == 10 + 60
    assert table.step(StepBatch((), 3, 60, 40)) == 10 + 60 + 20
    assert table.step(StepBatch(((1, 0),), 3, 60, 40)) == 10 + 90
    assert table.step(StepBatch((), 3, 60, 58)) == table.step(StepBatch(((1, 0),), 3, 60, 58)) == 10 + 60 + 56


def test_idle_tiles_cost_a_decode_sequence_for_each_token_of_the_chunks():
    """7 ns for each of two sequences and each of two tokens; nothing in a pure decode step."""
    table = StepTimeTable(np.array([0, 10, 10, 10, 10]), np.array([0, 10, 10]), idle_fs=7_000_000)
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
    native = step_table(table)
    assert native is not None
    with pytest.raises(StoreError, match="a base of another length"):
        step_table(replace(table, past_base_ns=past[:2]))


def test_every_integer_of_a_table_reaches_the_core(monkeypatch):
    """Each field has a value of its own: none may be read for another."""
    monkeypatch.setattr(_core, "StepTable", lambda *given: given)
    numbers = {field.name: n for n, field in enumerate(fields(StepTimeTable)) if field.type == "int"}
    base, decode, past, longest = (np.array([n, n + 1]) for n in (100, 200, 300, 400))
    table = StepTimeTable(base, decode, **numbers, past_base_ns=past, longest_fs=longest)
    n = SimpleNamespace(**numbers)
    bases, coefficients, least, found, unsplit, grids, launch = step_table(table)
    assert bases == (base, past, decode) and found is longest and grids == Residuals().in_order()  # noqa: PT018
    assert coefficients == [
        n.pair_half_fs, n.kv_decode_fs, n.kv_mixed_fs, n.sequence_fs, n.past_fs, n.spread_decode_fs,
        n.spread_mixed_fs, n.scan_fs, n.idle_fs, n.alongside_fs,
    ]  # fmt: skip
    assert (least, unsplit) == (
        (n.least_kv_tokens, n.least_query_tokens),
        [n.unsplit_sequences, n.unsplit_fs, n.unsplit_hidden_fs],
    )
    assert launch == [
        n.launch_ns, n.captured_tokens, n.pieces_launch_ns, n.graph_launch_ns, n.launch_sequence_ns,
        n.tail_ns, n.tail_sequence_ns,
    ]  # fmt: skip


GRID = ResidualGrid((2, 4, 8), (0, 3), ((-9, 0), (3, 6), (30, 33)))


def test_what_is_not_linear_is_read_from_grids_by_hand():
    """By sequences and the KV of one, rounded down; for each chunk with a past by its tokens and that."""
    by_hand = {(2, 0): -9, (2, 1): -6, (1, 2): -3, (3, 0): -3, (3, 1): -1, (4, 3): 6, (6, 1): 17, (8, 9): 33}
    assert {at: GRID.at(*at) for at in by_hand} == by_hand
    past = ResidualGrid((1, 2), (1, 11), ((0, 100), (0, 200)))
    table = StepTimeTable(
        np.array([0, *[50] * 9]), np.array([0, *[40] * 8]), residuals=Residuals(GRID, GRID.times(2), past)
    )
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
def test_a_grid_of_rests_is_lines_between_its_points(data):
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


def test_a_grid_that_does_not_rise_is_refused_by_the_core():
    table = StepTimeTable(np.array([0, 1]), np.array([0, 1]))
    for grid in (replace(GRID, counts=(2, 2, 8)), replace(GRID, tokens=(3,)), replace(GRID, ns=())):
        with pytest.raises(StoreError, match="two axes that rise"):
            step_table(replace(table, residuals=Residuals(kv=grid)))
        with pytest.raises(StoreError, match="two axes that rise"):
            step_table(replace(table, residuals=Residuals(beside=grid)))
        with pytest.raises(StoreError, match="two axes that rise"):
            step_table(replace(table, residuals=Residuals(past=grid)))


def test_a_clock_spelled_out_is_exact():
    clock = load_step_time("linear:base=5ms,token=20us,decode=1us,context=50ns")
    batch = StepBatch(((100, 7), (3, 0)), decode_sequences=2, decode_kv_tokens=40, decode_max_kv_tokens=30)
    assert clock.step(batch) == 5_000_000 + 20_000 * 105 + 1_000 * 2 + 50 * 42
    only = StepBatch((), 3, 60, 20)
    assert clock.step(only) == 5_000_000 + 20_000 * 3 + 1_000 * 3 + 50 * 63
    table = clock.table(256, 8)
    assert [table.step(one) for one in (batch, only, StepBatch())] == [clock.step(batch), clock.step(only), 0]
    for wrong in ("linear:", "linear:base=5", "linear:base=5ms,base=1ms", "linear:x=1ns", "linear:base=2h"):
        with pytest.raises(UsageError, match=r"linear|base|unit|time"):
            load_step_time(wrong)


def test_a_model_of_step_times_without_a_table_is_refused():
    class WithoutTable:
        def table(self, max_tokens, max_sequences):
            return None

    settings = cluster((160,))
    machine = replace(settings.machines[0], step_time=WithoutTable())
    said = (
        r"^step_time\.table: step times of WithoutTable have no table; got NoneType; expected a StepTimeTable"
    )
    with pytest.raises(UsageError, match=said):
        simulate(replace(settings, machines=(machine,)), random_trace(1))


def test_a_set_serves_the_models_of_its_shapes_under_their_names():
    for own, other, model in (
        ("a100-llama-3-8b-tp1", "a100-llama-3.1-8b-tp1", "llama-3.1-8b"),
        ("rtx4090-llama-3.1-8b-tp1", "RTX4090-llama-3-8b-tp1", "llama-3-8b"),
        ("a100-llama-3-70b-tp4", "a100-llama-3.1-70b-tp4", "llama-3.1-70b"),
    ):
        assert load_step_time(own) == load_step_time(other)
        assert measured_on(other) == replace(measured_on(own), model=model)
        assert stated_step_errors(own) == stated_step_errors(other)
        both = load_model(measured_on(own).model), load_model(model)
        assert both[0].groups == both[1].groups
        assert (both[0].hidden_size, both[0].vocab_size) == (both[1].hidden_size, both[1].vocab_size)
    with pytest.raises(UsageError, match="unknown step time"):
        load_step_time("h100-llama-3.2-8b-tp1")


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("roofline:m.toml@h100:tp2", ["m.toml"]),
        ("roofline:./m.toml@g.toml:tp2,fp8", ["./m.toml", "g.toml"]),
        ("roofline:llama-3-8b@h100:tp2", []),
        ("aiconfigurator:llama-3.1-70b@h100:vllm:tp2", []),
        ("mine.toml", ["mine.toml"]),
        ("rows.csv", ["rows.csv"]),
        ("rows.csv.gz", ["rows.csv.gz"]),
        ("h100-llama-3-8b-tp1", []),
        ("linear:base=1ms", []),
    ],
)
def test_the_files_in_a_name_are_found_and_made_absolute(name, files):
    assert list(files_named_in(name)) == files
    absolute = name
    for file in files:
        absolute = absolute.replace(file, f"/there/{file}")
    assert with_absolute_files(name, "/there/{}".format) == absolute


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("roofline:llama-3-8b@h100", ("llama-3-8b", "h100", 1)),
        ("roofline:llama-3-8b@h100:tp4", ("llama-3-8b", "h100", 4)),
        ("h100-llama-3.1-8b-tp1", ("llama-3.1-8b", "h100", 1)),
        ("x.csv", (None, None, 1)),
        ("x.csv.gz", (None, None, 1)),
        ('gpu = "l4"', (None, "l4", 1)),
        ('model = "own"\ntensor_parallel = 8', ("own", None, 8)),
    ],
)
def test_a_source_of_step_times_says_what_it_is_of(tmp_path, name, subject):
    """A file of one's own may leave out model, GPU and degree."""
    if "=" in name:
        (tmp_path / "own.toml").write_text(f"{name}\n[coefficients]\n")
        name = str(tmp_path / "own.toml")
    found = measured_on(name)
    assert (found.model, found.gpu, found.tensor_parallel) == subject


@pytest.mark.parametrize(
    ("given", "terms"),
    [
        ({}, {}),
        ({"launch_ms": 5.0}, {"launch_ns": 5_000_000, "captured_tokens": 64}),
        ({"launch_pieces_ms": 2.5}, {"pieces_launch_ns": 2_500_000, "captured_tokens": 64}),
        ({"launch_graph_ms": 1.5}, {"graph_launch_ns": 1_500_000, "captured_tokens": 64}),
        ({"launch_sequence_ms": 0.25}, {"launch_sequence_ns": 250_000, "captured_tokens": 64}),
        ({"tail_ms": 0.5}, {"tail_ns": 500_000, "captured_tokens": 64}),
        ({"tail_sequence_ms": 0.125}, {"tail_sequence_ns": 125_000, "captured_tokens": 64}),
        ({"pairs_ms_per_million": 3.0}, {"pair_half_fs": 1_500_000}),
        ({"kv_ms_per_thousand": 0.5}, {"kv_decode_fs": 500_000_000, "kv_mixed_fs": 500_000_000}),
        ({"kv_mixed_ms_per_thousand": 0.5}, {"kv_mixed_fs": 500_000_000}),
        ({"past_ms_per_thousand": 2.0}, {"past_fs": 2_000_000_000}),
        ({"kv_ms_per_thousand": 0.5, "spread": 0.4}, {"kv_decode_fs": 500_000_000, "kv_mixed_fs": 500_000_000, "spread_decode_fs": 200_000_000}),
        ({"kv_mixed_ms_per_thousand": 0.5, "spread_mixed": 0.4}, {"kv_mixed_fs": 500_000_000, "spread_mixed_fs": 200_000_000}),
        ({"idle_ms_per_million": 7.0}, {"idle_fs": 7_000_000}),
        ({"beside_ms": 2.0}, {"alongside_fs": 2 * 10**12}),
        ({"scan_ms_per_thousand": 2.0}, {"scan_fs": 2 * 10**9}),
        ({"sequence_ms": 0.5}, {"sequence_fs": 5 * 10**11}),
    ],
)  # fmt: skip
def test_each_coefficient_is_a_term_of_the_table_in_its_unit(given, terms):
    """Of a model of nothing but weights; every other term stays at nought."""
    model = ParametricStepTime(weights_ms=1.0, graph_tokens=64, **given)
    table = model.table(128, 16)
    names = ["launch_ns", "pieces_launch_ns", "graph_launch_ns", "launch_sequence_ns", "tail_ns", "tail_sequence_ns", "pair_half_fs", "kv_decode_fs", "kv_mixed_fs", "past_fs", "spread_decode_fs", "spread_mixed_fs", "idle_fs", "alongside_fs", "scan_fs", "sequence_fs"]  # fmt: skip
    found = {name: getattr(table, name) for name in names if getattr(table, name)}
    launches = (
        {"captured_tokens": table.captured_tokens}
        if any("launch" in name or "tail" in name for name in found)
        else {}
    )
    assert found | launches == terms
