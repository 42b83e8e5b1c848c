"""Step-time models: properties of each, what their coefficients say, and how a model is named."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import (
    ParametricStepTime,
    capture_sizes,
    padded_tokens,
    parametric_step_time,
)
from kvcache_sim.model.step_time import StepBatch, StepTimeTable
from kvcache_sim.model.step_times import (
    DEFAULT_STEP_TIME,
    MeasuredOn,
    files_named_in,
    load_step_time,
    nearest_source,
    step_time_names,
    with_absolute_files,
)
from kvcache_sim.simulation import simulate
from step_batches import batches, more_of_one_thing
from support.clusters import cluster
from support.product.models import measured_on, stated_step_errors
from support.traces import random_trace


@pytest.mark.parametrize("name", step_time_names())
@given(batch=batches())
def test_a_shipped_set_never_falls_when_an_argument_rises(name, batch):
    model = load_step_time(name)
    table = model.table(16_384, 512)
    time = table.step(batch)
    assert time == model.step(batch) >= 0
    for bigger in more_of_one_thing(batch):
        assert table.step(bigger) >= time, bigger


@pytest.mark.parametrize("name", step_time_names())
def test_an_empty_step_takes_no_time_and_any_other_some(name):
    model = load_step_time(name)
    assert model.step(StepBatch()) == 0
    assert model.step(StepBatch(((1, 0),))) > 1_000_000
    assert model.step(StepBatch((), 1, 1, 1)) > 1_000_000


def test_padding_follows_the_captured_sizes():
    sizes = capture_sizes(512).tolist()
    assert (len(sizes), sizes[:5]) == (3 + 31 + 17, [1, 2, 4, 8, 16])
    assert set(np.diff(sizes[3:35])) == {8}
    assert set(np.diff(sizes[34:])) == {16}
    padded = padded_tokens(512, 600)
    by_tokens = {0: 0, 1: 1, 2: 2, 3: 4, 5: 8, 9: 16, 17: 24, 249: 256, 257: 272, 500: 512, 512: 512}
    by_tokens |= {513: 513, 600: 600}
    assert {tokens: int(padded[tokens]) for tokens in by_tokens} == by_tokens
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
    by_tokens = {0: 0, 1: 2, 10: 3, 13: 4, 16: 5, 20: 5, 30: 7, 40: 9}
    assert {tokens: int(base[tokens]) for tokens in by_tokens} == {
        n: ms * 10**6 for n, ms in by_tokens.items()
    }


def test_a_deployment_has_the_source_nearest_to_real_runs():
    """Its own iterations, under a model of the same shapes too; a composed or transferred set is not one."""
    assert nearest_source("llama-3.1-8b", "h100", 1) == "h100-llama-3.1-8b-tp1" == DEFAULT_STEP_TIME
    assert nearest_source("llama-3-8b", "h100", 1) == "h100-llama-3.1-8b-tp1"
    assert nearest_source("qwen3-32b", "b300", 2) == "b300-qwen3-32b-tp2"
    for model, gpu, degree in (("qwen3-32b", "b300", 4), ("qwen3-32b", "h100", 2), ("llama-3-8b", "a100", 1)):
        source = nearest_source(model, gpu, degree)
        assert source == f"roofline:{model}@{gpu}" + (f":tp{degree}" if degree > 1 else "")
        assert measured_on(source) == MeasuredOn(model, gpu, degree)


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


#: A coefficient, its value, and the terms of the table that it gives, every other one being 0.
TERMS = """
launch_ms                5      launch_ns=5_000_000
launch_pieces_ms         2.5    pieces_launch_ns=2_500_000
launch_graph_ms          1.5    graph_launch_ns=1_500_000
launch_sequence_ms       0.25   launch_sequence_ns=250_000
tail_ms                  0.5    tail_ns=500_000
tail_sequence_ms         0.125  tail_sequence_ns=125_000
pairs_ms_per_million     3      pair_half_fs=1_500_000
kv_ms_per_thousand       0.5    kv_decode_fs=500_000_000 kv_mixed_fs=500_000_000
kv_mixed_ms_per_thousand 0.5    kv_mixed_fs=500_000_000
past_ms_per_thousand     2      past_fs=2_000_000_000
idle_ms_per_million      7      idle_fs=7_000_000
beside_ms                2      alongside_fs=2_000_000_000_000
scan_ms_per_thousand     2      scan_fs=2_000_000_000
sequence_ms              0.5    sequence_fs=500_000_000_000
"""


@pytest.mark.parametrize("line", TERMS.strip().splitlines())
def test_each_coefficient_is_a_term_of_the_table_in_its_unit(line):
    """Of a model of nothing but weights; a launch or a tail counts past the tokens of the graphs."""
    coefficient, value, *given = line.split()
    terms = {name: int(number) for name, number in (term.split("=") for term in given)}
    if "launch" in coefficient or "tail" in coefficient:
        terms["captured_tokens"] = 64
    model = ParametricStepTime(weights_ms=1.0, graph_tokens=64, **{coefficient: float(value)})
    table = model.table(128, 16)
    names = [field.name for field in fields(StepTimeTable) if field.type == "int"]
    assert {name: getattr(table, name) for name in names if getattr(table, name)} == terms


def test_shares_of_unequal_lengths_are_of_the_cost_of_kv():
    model = ParametricStepTime(
        kv_ms_per_thousand=0.5, kv_mixed_ms_per_thousand=1.0, spread=0.4, spread_mixed=0.1, weights_ms=1.0
    )
    table = model.table(128, 16)
    assert (table.spread_decode_fs, table.spread_mixed_fs) == (200_000_000, 100_000_000)
