"""The rows of a sweep's space: the product of its parts, and values between the bounds of a draw."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.rng import stream
from kvcache_sim.extras.study.sweeps.space import Choice, Space, interval
from support.examples import examples


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
