"""Rules that choose requests, and the rows of a sweep's space, against a model in a few lines."""

import itertools
import math
import operator
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.extras.study.sweeps.simulation import _RequestsKey
from kvcache_sim.extras.study.sweeps.space import MAX_CELLS, Choice, Space, interval
from kvcache_sim.metrics.request_rule import PRIORITY, Condition, parse_request_rule, trace_fields
from kvcache_sim.scenario.load import load_scenario
from support.examples import examples

COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("input_tokens > 3", [("input_tokens", ">", 3.0)]),
        (" turn>=-1.5 and a_1 == gold ", [("turn", ">=", -1.5), ("a_1", "==", "gold")]),
        ("is_conversational_turn == true", [("is_conversational_turn", "==", 1.0)]),
        (
            "is_conversational_turn != false and turn < 2",
            [("is_conversational_turn", "!=", 0.0), ("turn", "<", 2.0)],
        ),
        ("is_conversational_turn > 0", [("is_conversational_turn", ">", 0.0)]),
        ("x != 'a b'", [("x", "!=", "a b")]),
        ('x == "5"', [("x", "==", 5.0)]),
        ("priority <= 3", [("priority", "<=", 3.0)]),
        ("x == 1234567890123456", [("x", "==", "1234567890123456")]),
        ("x == true", [("x", "==", "true")]),
        ("x == " + "y" * 100, [("x", "==", "y" * 100)]),
        (
            "turn > 1 and " * 37 + "turn > 123456789012",
            [("turn", ">", 1.0)] * 37 + [("turn", ">", 123456789012.0)],
        ),
    ],
)
def test_a_rule_is_its_conditions(text, conditions):
    rule = parse_request_rule(text)
    assert [(one.field, one.comparison, one.value) for one in rule.conditions] == conditions
    assert str(rule) == text
    own = {"input_tokens", "output_tokens", "turn", "is_conversational_turn"}
    assert rule.trace_fields == {name for name, *_ in conditions} - own


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "not a rule"),
        ("turn", "not a rule"),
        ("turn = 3", "not a rule"),
        ("turn > 3 and", "not a number"),
        ("5 > turn", "not a rule"),
        ("x == " + "y" * 101, "not a rule"),
        ("turn > 1 and " * 37 + "turn > 1234567890123", "not a rule"),
        ("turn == x", "not a number"),
        ("priority == high", "not a number"),
        ("x > y", "not a number"),
        ("x >= true", "not a number"),
        ("is_conversational_turn == yes", "not a number"),
        ("turn == true", "not a number"),
    ],
)
def test_what_is_no_rule_is_refused(text, line):
    with pytest.raises(UsageError, match=line):
        parse_request_rule(text)


MEMBERS = [3, 3.5, "gold", "3", None, True]


@pytest.mark.parametrize("comparison", COMPARE)
@pytest.mark.parametrize("value", [3.0, "gold"])
def test_texts_and_numbers_are_never_equal_nor_ordered(comparison, value):
    if isinstance(value, str) and comparison not in ("==", "!="):
        return
    members = np.array([*MEMBERS, None], object)[:-1]
    alike = [isinstance(own, str) == isinstance(value, str) and own is not None for own in MEMBERS]
    expected = [
        COMPARE[comparison](own, value) if same else comparison == "!="
        for own, same in zip(MEMBERS, alike, strict=True)
    ]
    assert Condition("x", comparison, value).holds(members).tolist() == expected
    numbers = np.array([2, 3, 4])
    compared = (
        [comparison == "!="] * 3
        if isinstance(value, str)
        else [COMPARE[comparison](own, value) for own in (2, 3, 4)]
    )
    assert Condition("x", comparison, value).holds(numbers).tolist() == compared


@pytest.mark.parametrize(
    ("first", "second"),
    list(itertools.product(["turn > 1", "turn <= 1"], ["customer == gold", "customer != gold"])),
)
def test_all_conditions_hold_for_the_requests_of_the_rows(first, second):
    """Rows are some requests of the trace, in any order; members are by request."""
    customers = ["gold", None, "iron", "gold"]
    rows = {"request": np.array([3, 1, 0]), "turn": np.array([1, 2, 3])}
    members = {"customer": np.array([*customers, None], object)[:-1]}
    found = parse_request_rule(f"{first} and {second}").holds(rows, members).tolist()
    assert found == [
        (turn > 1) == (">" in first) and (customers[k] == "gold") == ("==" in second)
        for k, turn in ((3, 1), (1, 2), (0, 3))
    ]


@pytest.mark.parametrize("ranked", [True, False])
def test_fields_of_a_trace_are_numbers_and_texts(ranked):
    extra = ['"a": 5, "b": true', "", '"a": "x", "b": false, "c": [1]', '"a": {"d": 1}, "c": null']
    trace = SimpleNamespace(
        priority=np.array([4, 3, 2, 1] if ranked else []), extra=extra, source="t.jsonl", __len__=lambda: 4
    )
    trace = type("Rows", (), {**vars(trace), "__len__": lambda self: 4})()
    found = trace_fields(trace, frozenset({"a", "b", PRIORITY}))
    assert found["a"].tolist() == [5, None, "x", None]
    assert found["b"].tolist() == ["true", None, "false", None]
    assert found[PRIORITY].tolist() == ([4, 3, 2, 1] if ranked else [0] * 4)
    assert [*trace_fields(trace, frozenset({PRIORITY}))] == [PRIORITY]
    assert trace_fields(trace, frozenset()) == {}
    for none in ("c", "z"):
        with pytest.raises(UsageError, match=rf"t.jsonl: no request has a field '{none}'"):
            trace_fields(trace, frozenset({none, "a"}))
    with pytest.raises(UsageError, match="no request has a field 'q'"):
        trace_fields(trace, frozenset("zyxwvutsrqa"))
    trace.extra = []
    with pytest.raises(UsageError, match="no request has a field 'a'"):
        trace_fields(trace, frozenset({"a"}))


# -- the rows of a sweep


@examples(40)
@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))
def test_the_rows_of_a_space_are_the_product_of_its_parts(first, second, zipped, listed, drawn):
    grid = {name: list(range(size)) for name, size in (("a", first), ("b", second)) if size}
    columns = {"c": [10, 20][:zipped], "d": ["x", "y"][:zipped]} if zipped else {}
    points = [{"e": 1, "f": 2}, {"e": 3}][:listed]
    draws = {"g": interval(0, 1000, "linear", "g"), "h": Choice(("u", "v", "w"))} if drawn else {}
    space = Space(grid, columns, points, draws, drawn)
    generator = stream(5, "sweep.random")
    random_rows = [{name: one.draw(generator) for name, one in draws.items()} for _ in range(drawn)]
    parts = [[{"a": k} for k in range(first)]] * bool(first) + [[{"b": k} for k in range(second)]] * bool(
        second
    )
    parts += [[{"c": c, "d": d} for c, d in zip(*columns.values(), strict=True)]] * bool(zipped) + [
        points
    ] * bool(listed)
    parts += [random_rows] * bool(drawn)
    expected = [
        {name: value for part in row for name, value in part.items()} for row in itertools.product(*parts)
    ]
    assert [*space.rows(5)] == expected
    assert space.size() == len(expected) == math.prod(map(len, parts))
    assert space.factors() == {
        **{f"grid {name}": len(own) for name, own in grid.items()},
        **({"zip": zipped} if zipped else {}),
        **({"list": listed} if listed else {}),
        **({"random": drawn} if drawn else {}),
    }


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        (MAX_CELLS, 1, True),
        (MAX_CELLS // 2, 2, True),
        (MAX_CELLS + 1, 1, False),
        (MAX_CELLS // 2 + 1, 2, False),
    ],
)
def test_a_space_has_a_most_of_cells(first, second, fits):
    space = Space({"a": range(first), "b": range(second)})
    if fits:
        assert space.size() == first * second
        return
    with pytest.raises(
        UsageError,
        match=rf"too many cells; got {first} × {second} = {first * second:,}; expected at most 100,000",
    ):
        space.size()
    with pytest.raises(UsageError, match="too many cells"):
        next(space.rows(0))


@pytest.mark.parametrize(
    ("space", "kinds"),
    [
        (Space({"a": [1, 2]}), False),
        (Space({"a": ["x"]}), False),
        (Space({"a": ["x", "y"]}), True),
        (Space({"a": ["1GiB", "2 blocks", "3s", "4GB/s", 5]}), False),
        (Space({"a": [1, True]}), True),
        (Space({"a": [1, None]}), True),
        (Space(columns={"a": ["x", "y"]}), True),
        (Space(points=[{"a": "x"}, {"b": "y"}]), False),
        (Space(points=[{"a": "x"}, {"a": "y"}]), True),
        (Space({"a": ["x"]}, points=[{"a": "y"}]), True),
        (Space(draws={"a": Choice(("x", "y"))}), True),
        (Space(draws={"a": Choice((1, 2))}), False),
        (Space(draws={"a": interval(1, 2, "log", "a")}), False),
        (Space(), False),
    ],
)
def test_kinds_are_compared_where_a_setting_has_words(space, kinds):
    assert space.compares_kinds() is kinds


@pytest.mark.parametrize(
    ("low", "high", "scale", "line"),
    [
        (1, 1, "linear", "empty range"),
        (2, 1, "linear", "empty range; got 2 to 1; expected low < high$"),
        (0, 1, "log", "empty range.*both above zero"),
        (-1, 1, "log", "empty range"),
        (0, 1, "linear", ""),
        (-1, 1, "linear", ""),
        ("1GiB", "2GiB", "log", ""),
        ("1GiB", "2s", "linear", "bounds with different units"),
        (1, "2s", "linear", "bounds with different units"),
        ("1 blocks", "2 blocks", "linear", ""),
        ("x", 1, "linear", "not a bound"),
        (True, 2, "linear", "not a bound"),
        (0, math.inf, "linear", "not a bound"),
        (1, 2, "cubic", "unknown scale"),
    ],
)
def test_the_bounds_of_a_draw(low, high, scale, line):
    if line:
        with pytest.raises(UsageError, match=line):
            interval(low, high, scale, "a")
        return
    drawn = interval(low, high, scale, "a")
    ends = [drawn.value(share) for share in (0.0, 1.0)]
    generator = np.random.default_rng(0)
    assert all(type(drawn.draw(generator)) is type(ends[0]) for _ in range(5))


@pytest.mark.parametrize(
    ("low", "high", "scale", "values"),
    [
        (0, 10, "linear", [0, 2, 5, 10]),
        (0.0, 10, "linear", [0.0, 2.5, 5.0, 10.0]),
        (1, 10**4, "log", [1, 10, 100, 10**4]),
        ("1KiB", "5KiB", "linear", ["1024B", "2048B", "3072B", "5120B"]),
        ("1s", "5s", "linear", ["1000000000ns", "2000000000ns", "3000000000ns", "5000000000ns"]),
        ("1GB/s", "2GB/s", "linear", ["1000000000B/s", "1250000000B/s", "1500000000B/s", "2000000000B/s"]),
        ("4 blocks", "8 blocks", "linear", ["4 blocks", "5 blocks", "6 blocks", "8 blocks"]),
        (1, 2.0, "linear", [1.0, 1.25, 1.5, 2.0]),
    ],
)
def test_the_values_of_an_interval_at_its_quarters(low, high, scale, values):
    drawn = interval(low, high, scale, "a")
    assert [drawn.value(share) for share in (0.0, 0.25, 0.5, 1.0)] == values


def test_cells_share_requests_that_their_settings_leave_the_same(tmp_path):
    """A seed draws a generator's requests and none of a file's; blocks and tiers may change either."""
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 100, "output_length": 5, "hash_ids": [1]}\n')

    def key(own, *changes):
        return _RequestsKey(load_scenario(None, [*own, *changes], trace if not own else None))

    drawn = ("workload.kind=diverse", "workload.requests=3")
    for own, seed_matters in (((), False), (drawn, True)):
        first = key(own)
        assert first == key(own, "replica.step_overhead=1ms")
        assert (first == key(own, "seed=9")) is not seed_matters
        assert first != key(own, "tiers.gpu.capacity=77 blocks")
