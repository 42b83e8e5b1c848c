"""Sections against models that pydantic itself makes of the same keys: what they take, refuse and write out."""

from __future__ import annotations

import json
from functools import cache
from math import inf, nan
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.scenario.checks import validated
from kvcache_sim.scenario.load import load_scenario
from kvcache_sim.scenario.quantities import DurationNs
from kvcache_sim.scenario.replica_section import ReplicaSection
from kvcache_sim.scenario.schema import (
    CacheSection,
    MachineSection,
    PoolsSection,
    ScenarioModel,
    WriteSection,
)
from kvcache_sim.scenario.section import Checked, Field, Key, Parsed, Section, plain_values
from kvcache_sim.scenario.trace_section import TraceChanges
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, create_model
from pydantic import Field as PydanticField
from pydantic_core import ValidationError

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").glob("*.yaml"))


def sections(root: type[Section]) -> set[type[Section]]:
    """Return a section and all sections inside it."""
    found = {root}
    for key in root.model_fields.values():
        for inner in inside(key.hint):
            found |= sections(inner)
    return found


def inside(hint: Any) -> list[type[Section]]:
    if isinstance(hint, type) and issubclass(hint, Section):
        return [hint]
    return [found for part in get_args(hint) for found in inside(part)]


class Limited(Section):
    """Each limit on a quantity."""

    at_least: DurationNs = Field(5, ge=5)
    above: DurationNs = Field(5, gt=5)
    at_most: DurationNs | None = Field(None, le=5)
    below: DurationNs | None = Field(None, lt=5)


SECTIONS = sorted(
    {Limited}.union(*map(sections, (ScenarioModel, MachineSection, TraceChanges))),
    key=lambda section: section.__name__,
)


@cache
def model_of(section: type[Section]) -> type[BaseModel]:
    """Return the section as one would write it for pydantic."""
    fields: dict[str, Any] = {}
    for name, key in section.model_fields.items():
        told: dict[str, Any] = dict(key.limits)
        if key.default_factory is not None:
            told["default_factory"] = key.default_factory
        elif not key.required:
            told["default"] = pydantics(key.default)
        fields[name] = (translated(key.hint), PydanticField(**told))
    config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
    return create_model(section.__name__, __config__=config, **fields)


def translated(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Section):
        return model_of(hint)
    parts = get_args(hint)
    if get_origin(hint) is Annotated:
        marks = [each for mark in parts[1:] for each in marks_of(mark)]
        return Annotated[(translated(parts[0]), *marks)]
    own = tuple(translated(part) for part in parts)
    if get_origin(hint) in (list, dict):
        return get_origin(hint)[own]
    return Union[own] if get_origin(hint) in (Union, UnionType) else hint  # noqa: UP007 - of what was found


def marks_of(mark: Any) -> list[Any]:
    if isinstance(mark, Parsed):
        return [BeforeValidator(mark.parse), PlainSerializer(mark.render)]
    if isinstance(mark, Checked):
        return [AfterValidator(mark.func)]
    assert isinstance(mark, Key)
    return [PydanticField(**mark.limits)]


def pydantics(value: Any) -> Any:
    """Return a value with each section in it as pydantic's model of the same values."""
    if isinstance(value, Section):
        own = {name: pydantics(inner) for name, inner in value.__dict__.items()}
        return model_of(type(value)).model_construct(**own)
    if isinstance(value, dict):
        return {name: pydantics(inner) for name, inner in value.items()}
    return [pydantics(inner) for inner in value] if isinstance(value, list) else value


def told(error: ValidationError) -> list[tuple[Any, ...]]:
    """Return what is said of each problem.

    A union's arms are named otherwise, so paths are not compared; beyond a limit we tell what was written
    ('0s'), pydantic in places what it means (0).
    """
    return [
        (one["type"], one["msg"], None if "than" in one["type"] else one["input"])
        for one in error.errors(include_url=False)
    ]


def outcome(make: Any, values: Any) -> Any:
    try:
        return "taken", make(values)
    except ValidationError as error:
        return "refused", told(error)


WORDS = (
    "lru", "file.py:Name", "vllm", "reject", "x", "", "3s", "0s", "250us", "80GiB", "0B", "16384 blocks", "auto",
    "unbounded", "25GB/s", "400Gb/s", "10%", "5m", "1000 requests", "input_tokens > 3", "true", "cpu->gpu",
    "least-loaded", "always", "through", "back", "both", "gpu", "fair", "machine", "lose", "queue", "queueing",
)  # fmt: skip
VALUES = (None, True, 0, 1, -1, 1.5, nan, inf, -inf, [], {})
PLAIN = st.one_of(
    st.sampled_from(WORDS), st.none(), st.booleans(), st.integers(-2, 70), st.integers(-(2**64), 2**64),
    st.floats(), st.floats(0, 2),
)  # fmt: skip


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values for a type, about half of which it takes."""
    if isinstance(hint, type) and issubclass(hint, Section):
        return st.one_of(given_to(hint), PLAIN)
    parts, origin = get_args(hint), get_origin(hint)
    if origin is list:
        return st.one_of(st.lists(values_of(parts[0]), max_size=2), PLAIN)
    if origin is dict:
        return st.one_of(st.dictionaries(st.sampled_from(WORDS), values_of(parts[1]), max_size=2), PLAIN)
    if origin in (Union, UnionType):
        return st.one_of(*map(values_of, parts))
    if origin is Literal:
        return st.one_of(st.sampled_from(parts), PLAIN)
    return PLAIN


@st.composite
def given_to(draw: Any, section: type[Section]) -> Any:
    """Return a few keys of a section, seldom without one that must be given, seldom with an unknown one."""
    keys = section.model_fields
    needed = [name for name, key in keys.items() if key.required and draw(st.integers(0, 9))]
    chosen = dict.fromkeys([*needed, *draw(st.lists(st.sampled_from(list(keys)), max_size=3))])
    unknown = {} if draw(st.integers(0, 9)) else {"unknown": 1}
    return {name: draw(values_of(keys[name].hint)) for name in chosen} | unknown


SMALL = st.sampled_from(SECTIONS).flatmap(lambda own: st.tuples(st.just(own), given_to(own)))


@given(SMALL)
def test_a_section_takes_and_refuses_what_pydantic_does(asked):
    section, values = asked
    mine, theirs = (
        outcome(lambda own: validated(section, own), values),
        outcome(model_of(section).model_validate, values),
    )
    assert mine[0] == theirs[0]
    if mine[0] == "refused":
        assert mine[1] == theirs[1]
    else:
        assert pydantics(mine[1]) == theirs[1]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda own: own.__name__)
def test_each_key_takes_and_refuses_what_pydantic_does(section):
    """Each key alone, at its limits and beside them."""
    for name, key in section.model_fields.items():
        marks = [mark for part in parts_of(key.hint) for mark in part.__metadata__ if isinstance(mark, Key)]
        limits = [
            limit for own in (key, *marks) for limit in own.limits.values() if not isinstance(limit, str)
        ]
        near = [value for limit in limits for value in (limit - 1, limit, limit + 1, float(limit))]
        near += [f"{limit}{unit}" for limit in limits for unit in ("ns", "B")]
        for value in (*WORDS, *VALUES, *near):
            for values in ({name: value}, {name: [value]}, {name: {"gpu": value}}):
                mine = outcome(lambda own: validated(section, own), values)
                theirs = outcome(model_of(section).model_validate, values)
                assert (mine[0], repr(pydantics(mine[1]))) == (theirs[0], repr(theirs[1])), (name, value)


def parts_of(hint: Any) -> list[Any]:
    """Return the marked types in a type."""
    own = [hint] if get_origin(hint) is Annotated else []
    return [*own, *(found for part in get_args(hint) for found in parts_of(part))]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda own: own.__name__)
@pytest.mark.parametrize("wrong", [3, "x", None, [], True], ids=repr)
def test_what_is_no_mapping_is_refused_as_pydantic_does(section, wrong):
    assert outcome(lambda own: validated(section, own), wrong) == outcome(
        model_of(section).model_validate, wrong
    )


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_plain_values_are_what_pydantic_writes(path):
    model = load_scenario(path).model
    assert json.dumps(plain_values(model)) == json.dumps(pydantics(model).model_dump(mode="json"))


def test_a_section_is_a_value():
    one = CacheSection(policy="lfu")
    assert one == CacheSection().model_copy(update={"policy": "lfu"}) != CacheSection()
    assert list(one.__dict__) == list(CacheSection.model_fields)
    assert repr(PoolsSection(decode=2)) == "PoolsSection(prefill=0, decode=2)"
    with pytest.raises(AttributeError, match="CacheSection is frozen: policy"):
        one.policy = "lru"
    with pytest.raises(TypeError, match="CacheSection has no key polcy"):
        CacheSection(polcy="lru")


class _One(Section):
    """A section."""

    size: int = 3


class _Other(Section):
    """Another one with the same key."""

    size: int = 3


def test_keys_of_a_mapping_are_checked_as_its_values_are():
    taken = validated(WriteSection, {"policy": {"gpu": "through", "cpu": "back"}})
    assert taken.policy == {"gpu": "through", "cpu": "back"}
    for wrong in ({"nowhere": "back"}, {3: "back"}, {"gpu": "nohow"}):
        with pytest.raises(ValidationError):
            validated(WriteSection, {"policy": wrong})


def test_a_section_stands_for_itself_alone():
    own = PoolsSection(decode=2)
    assert validated(PoolsSection, own) is own
    with pytest.raises(ValidationError):
        validated(PoolsSection, CacheSection())


def test_sections_are_equal_by_kind_and_values():
    assert _One() == _One(size=3) != _Other()
    assert hash(_One()) == hash(_One(size=3)) != hash(_One(size=4))
    assert len({_One(), _One(), _One(size=4)}) == 2


def test_an_extended_section_has_the_text_and_the_place_of_its_base():
    more = _One.extended("_More", {"name": (str, Field("a", description="what it is called"))})
    assert (more.__doc__, more.__module__, more.__name__) == (_One.__doc__, _One.__module__, "_More")
    assert plain_values(more(size=4)) == {"size": 4, "name": "a"}
    assert issubclass(more, _One)


def test_plain_values_are_lists_and_mappings_all_the_way_down():
    one = _One(size=({"a": _Other()}, [(1, 2)]))
    assert plain_values(one) == {"size": [{"a": {"size": 3}}, [[1, 2]]]}


def test_a_key_left_out_has_its_default_beside_the_others():
    assert ReplicaSection().max_num_batched_tokens == 8192
    assert ReplicaSection(instant=True).max_num_batched_tokens == 1 << 20
    assert validated(ReplicaSection, {"instant": True}).max_num_batched_tokens == 1 << 20
