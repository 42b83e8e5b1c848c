"""Conditions that choose requests by their columns and by members of their rows."""

import itertools
import operator
from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.metrics.request_rule import PRIORITY, Condition, parse_request_rule, trace_fields
from support.small_traces import trace_of

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


@pytest.mark.parametrize("comparison", COMPARE)
@pytest.mark.parametrize("value", [3.0, "gold"])
def test_texts_and_numbers_are_never_equal_nor_ordered(comparison, value):
    if isinstance(value, str) and comparison not in ("==", "!="):
        return
    for members in (np.array([3, 3.5, "gold", "3", None, True], object), np.array([2, 3, 4])):
        expected = [
            COMPARE[comparison](own, value)
            if own is not None and isinstance(own, str) == isinstance(value, str)
            else comparison == "!="
            for own in members.tolist()
        ]
        assert Condition("x", comparison, value).holds(members).tolist() == expected


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


def test_fields_of_a_trace_are_numbers_and_texts():
    extra = ['"a": 5, "b": true', "", '"a": "x", "b": false, "c": [1]', '"a": {"d": 1}, "c": null']
    named = replace(trace_of([[1]] * 4), extra=extra, source="t.jsonl")
    trace = replace(named, priority=np.array([4, 3, 2, 1]))
    found = trace_fields(trace, frozenset({"a", "b", PRIORITY}))
    assert found["a"].tolist() == [5, None, "x", None]
    assert found["b"].tolist() == ["true", None, "false", None]
    assert found[PRIORITY].tolist() == [4, 3, 2, 1]
    assert trace_fields(named, frozenset({PRIORITY}))[PRIORITY].tolist() == [0] * 4
    assert trace_fields(trace, frozenset()) == {}
    for fields, lacking in (("ac", "c"), ("az", "z"), ("zyxwvutsrqa", "q")):
        with pytest.raises(UsageError, match=rf"t.jsonl: no request has a field '{lacking}'"):
            trace_fields(trace, frozenset(fields))
    with pytest.raises(UsageError, match="no request has a field 'a'"):
        trace_fields(replace(trace, extra=[]), frozenset({"a"}))
