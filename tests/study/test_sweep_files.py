"""Studies as files and command lines: spaces, ranges, limits and inputs, and what is refused."""

import itertools

import kvcache_sim as kv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.extras.study.sweeps.cell import Limits
from kvcache_sim.extras.study.sweeps.plan import MAX_CELLS
from kvcache_sim.extras.study.sweeps.simulation import prepare, refuse_unused
from kvcache_sim.extras.study.sweeps.space import Choice, interval
from kvcache_sim.extras.study.sweeps.study import inline_sweep, read_sweep_file
from support.examples import examples
from support.product.sweeps import Space


@pytest.mark.parametrize(
    ("low", "high", "scale", "found"),
    [
        (1, 2, "linear", (1, 2, False, "", True)),
        (1, 2.5, "linear", (1, 2.5, False, "", False)),
        (1.5, 3, "linear", (1.5, 3, False, "", False)),
        (0.1, 2, "log", (0.1, 2, True, "", False)),
        (-1, 0, "linear", (-1, 0, False, "", True)),
        ("1KiB", "2KiB", "linear", (1024, 2048, False, "B", True)),
        ("1ms", "1s", "log", (10**6, 10**9, True, "ns", True)),
        ("3 blocks", "4 blocks", "linear", (3, 4, False, " blocks", True)),
        *[(low, high, scale, None) for low, high, scale in ((2, 2, "linear"), (0, 2, "log"), (1, 2, "root"))],
        *[(low, 4, "linear", None) for low in ("2KiB", "3 block", "x blocks", True, float("-inf"))],
    ],
)
def test_a_range_is_read_by_its_bounds_or_refused(low, high, scale, found):
    if found is None:
        with pytest.raises(UsageError):
            interval(low, high, scale, "w")
    else:
        one = interval(low, high, scale, "w")
        assert (one.low, one.high, one.logarithmic, one.unit, one.whole) == found


def study(tmp_path, text):
    path = tmp_path / "sweep.yaml"
    path.write_text(f"scenario: base.yaml\n{text}")
    return read_sweep_file(path)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("list: []", "list"),
        ("list: {seed: 1}", "list"),
        ("random: {draws: 1, space: {x: {choice: []}}}", "random.space.x"),
        ("random: {draws: 1, space: {x: {choice: 3}}}", "random.space.x"),
        ("random: {draws: 1, space: {x: {choice: [1], low: 2}}}", "random.space.x"),
        ("random: {draws: 1, space: {x: {low: 1}}}", "random.space.x"),
        ("random: {draws: 1, space: {x: {high: 1}}}", "random.space.x"),
        ("zip: {b: [1, 2], c: [3]}", "zip"),
        ("grid: {a: [1]}\nzip: {a: [1]}", "grid and zip"),
        ("grid: {a: [1]}\nlist: [{b: 1}, {a: 2}]", "grid and list"),
        ("list: [{b: 1}]\nrandom: {draws: 1, space: {b: {choice: [1]}}}", "list and random"),
        ("limits: {time: 0s}", "limits"),
        ("limits: {memory: 0B}", "limits"),
        ("limits: {retries: 101}", "limits.retries"),
        ("limits: {retries: true}", "limits.retries"),
    ],
)
def test_a_wrong_part_of_a_study_is_named(tmp_path, text, where):
    with pytest.raises(UsageError) as refused:
        study(tmp_path, text)
    assert where in f"{refused.value.where} {refused.value.got}"


def test_a_study_has_what_its_file_says(tmp_path):
    text = "list: [{seed: 1}]\nrandom:\n  draws: 3\n  space: {x: {choice: [1, 2]}, y: {low: 1, high: 2, scale: log}}\n"
    found = study(tmp_path, text + "limits: {time: 90s, memory: 2KiB, retries: 0}\n")
    assert found.space.points == [{"seed": 1}]
    assert found.space.draws == {"x": Choice((1, 2)), "y": interval(1, 2, "log", "")}
    assert found.limits == Limits(90.0, 2048, 0)
    assert study(tmp_path, "").limits == Limits()


def test_commas_within_brackets_belong_to_a_value_of_a_grid():
    grid = inline_sweep(None, None, [], ["k=a,{b: 1, c: 2},f"]).space.grid
    assert grid == {"k": ["a", {"b": 1, "c": 2}, "f"]}


def test_a_grid_of_too_many_cells_is_refused_with_its_product(tmp_path):
    with pytest.raises(UsageError, match=r"2 × 1000 × 1000 × 1000 = 2,000,000,000"):
        study(tmp_path, "grid:\n  x: [1, 2]\n" + "".join(f"  y{n}: {[*range(1000)]}\n" for n in range(3)))
    assert Space(grid={"x": [1] * MAX_CELLS}).size() == MAX_CELLS
    with pytest.raises(UsageError, match="too many cells"):
        Space(grid={"x": [1] * (MAX_CELLS + 1)}).size()


@pytest.mark.parametrize("values", ["1", "", 5, [], {}, {1: 2}, None])
def test_values_of_a_grid_in_python_are_a_list(values):
    with pytest.raises(UsageError) as refused:
        kv.sweep("t.jsonl", grid={"a.b": values})
    assert refused.value.where in ("grid", "grid: a.b")


@pytest.mark.parametrize(
    ("rows", "refused"), [(["ab"], "a"), (["ab", "b"], "b"), (["a", "b"], ""), (["b", ""], "")]
)
def test_a_setting_is_refused_if_no_row_uses_it(rows, refused):
    """Each row names the settings that it does not use; of several the first row's first is named."""
    idle = [{name: UsageError(name) for name in row} for row in rows]
    if not refused:
        refuse_unused(idle)
        return
    with pytest.raises(UsageError) as raised:
        refuse_unused(idle)
    assert raised.value is idle[0][refused]


def test_files_of_models_and_gpus_are_inputs_of_a_sweep(tmp_path):
    """An edited model, GPU or table of links makes other cells, as an edited trace does."""
    from support.product.models import new_gpu, new_model

    (tmp_path / "m.toml").write_text(new_model("llama-3-8b"))
    (tmp_path / "g.toml").write_text(new_gpu("h100"))
    (tmp_path / "l.csv").write_text("num_gpus,message_bytes,time_ms\n2,8,0.1\n")
    path = tmp_path / "study.yaml"
    path.write_text(
        "scenario:\n  model: m.toml\n  workload: {kind: conversational, requests: 5}\n"
        "  tiers: {gpu: {capacity: 2000 blocks}}\n"
        "  replica: {step_time: 'roofline:m.toml@g.toml:tp2', links: l.csv}\n"
        "grid: {seed: [1]}\n"
    )
    prepared, resolve = prepare(read_sweep_file(path))
    resolve({"seed": 1})
    assert {name.rpartition("/")[2] for name in prepared.files} == {"m.toml", "g.toml", "l.csv"}


@examples(40)
@given(st.integers(0, 3), st.integers(0, 3), *[st.integers(0, 2)] * 3)
def test_the_rows_of_a_space_are_the_product_of_its_parts(first, second, zipped, listed, drawn):
    grid = {name: list(range(size)) for name, size in (("a", first), ("b", second)) if size}
    columns = {"c": [10, 20][:zipped], "d": ["x", "y"][:zipped]} if zipped else {}
    points = [{"e": 1, "f": 2}, {"e": 3}][:listed]
    draws = {"g": interval(0, 1000, "linear", "g"), "h": Choice(("u", "v", "w"))} if drawn else {}
    space = Space(grid, columns, points, draws, drawn)
    generator = stream(5, "sweep.random")
    parts = {f"grid {name}": [{name: value} for value in own] for name, own in grid.items()}
    parts["zip"] = [{"c": c, "d": d} for c, d in zip(*columns.values(), strict=True)] if zipped else []
    parts["list"] = points
    parts["random"] = [{name: one.draw(generator) for name, one in draws.items()} for _ in range(drawn)]
    parts = {name: part for name, part in parts.items() if part}
    products = itertools.product(*parts.values())
    expected = [{name: value for part in row for name, value in part.items()} for row in products]
    assert [*space.rows(5)] == expected
    assert space.size() == len(expected)
    assert space.factors() == {name: len(part) for name, part in parts.items()}


@pytest.mark.parametrize(
    ("low", "high", "scale", "values"),
    [
        (0, 10, "linear", [0, 2, 5, 10]),
        (0.0, 10, "linear", [0.0, 2.5, 5.0, 10.0]),
        (1, 10**4, "log", [1, 10, 100, 10**4]),
        ("1KiB", "5KiB", "linear", ["1024B", "2048B", "3072B", "5120B"]),
        ("4 blocks", "8 blocks", "linear", ["4 blocks", "5 blocks", "6 blocks", "8 blocks"]),
    ],
)
def test_the_values_of_an_interval_at_its_quarters(low, high, scale, values):
    drawn = interval(low, high, scale, "a")
    assert [drawn.value(share) for share in (0.0, 0.25, 0.5, 1.0)] == values
