"""``kvcache_sim.values.dataclass`` against the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from typing import ClassVar

import pytest
from kvcache_sim import values


def shapes(dataclass):
    """Return classes made by a decorator of that kind."""

    @dataclass(frozen=True, slots=True)
    class Frozen:
        """Plain fields, one with a default, one out of comparisons, one not shown."""

        kind: ClassVar[str] = "frozen"
        a: int
        b: str = "b"
        c: int = field(default=3, compare=False)
        d: int = field(default=4, repr=False)

    @dataclass(frozen=True, slots=True)
    class Made:
        """Fields that are made, and one that is derived."""

        a: list[int] = field(default_factory=list)
        b: int = field(init=False, default=7)
        c: list[int] = field(init=False, default_factory=lambda: [1])

        def __post_init__(self):
            object.__setattr__(self, "b", len(self.a))

    @dataclass(slots=True)
    class Open:
        """Fields that change."""

        a: int = 1
        b: dict[str, int] = field(default_factory=dict)
        late: int = field(init=False)

        def __post_init__(self):
            self.late = self.a + 1

    @dataclass(slots=True, eq=False)
    class Alone:
        """Equal to itself only."""

        a: int = 1

    @dataclass(frozen=True, slots=True)
    class Own:
        """With methods of its own."""

        a: int = 1

        def __repr__(self):
            return "mine"

        def __eq__(self, other):
            return True

        def __hash__(self):
            return 5

    @dataclass(frozen=True, slots=True)
    class Nothing:
        """No fields."""

    @dataclass(frozen=True, slots=True)
    class Base:
        """A field to inherit."""

        a: int = 1

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        """One more."""

        b: int = 2

    return {made.__name__: made for made in (Frozen, Made, Open, Alone, Own, Nothing, Base, Derived)}


OURS, THEIRS = shapes(values.dataclass), shapes(dataclasses.dataclass)
GIVEN = {
    "Frozen": [((1,), {}), ((1,), {"b": "x"}), ((1, "b", 9, 4), {}), ((2, "b", 3, 5), {})],
    "Made": [((), {}), (([1, 2],), {})],
    "Open": [((), {}), ((2,), {"b": {"k": 1}})],
    "Derived": [((), {}), ((1, 3), {}), ((), {"a": 4})],
}


@pytest.mark.parametrize("name", OURS)
def test_values_are_those_of_the_standard_library(name):
    ours, theirs = OURS[name], THEIRS[name]
    mine = [ours(*args, **named) for args, named in GIVEN.get(name, [((), {})] * 2)]
    other = [theirs(*args, **named) for args, named in GIVEN.get(name, [((), {})] * 2)]
    assert [repr(value) for value in mine] == [repr(value) for value in other]
    assert [[a == b for a in mine] for b in mine] == [[a == b for a in other] for b in other]
    assert all(value != 1 for value in mine) == all(value != 1 for value in other)
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    assert ours.__slots__ == theirs.__slots__
    assert [dataclasses.asdict(value) for value in mine] == [dataclasses.asdict(value) for value in other]
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert copy.deepcopy(mine[0]) == mine[0] or name == "Alone"


def test_equal_frozen_values_hash_alike():
    frozen = OURS["Frozen"]
    assert hash(frozen(1)) == hash(frozen(1, c=9)) != hash(frozen(2))
    assert len({frozen(1), frozen(1, c=9), frozen(1, "x")}) == 2


def test_a_frozen_value_refuses_and_can_be_replaced():
    value = OURS["Frozen"](1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        value.a = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del value.a
    assert dataclasses.replace(value, a=2) == OURS["Frozen"](2)
    with pytest.raises(TypeError, match="unexpected keyword"):
        OURS["Frozen"](1, z=2)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        OURS["Frozen"]()


@values.dataclass(frozen=True, slots=True)
class Sent:
    """At the top of a module, so that it can be pickled."""

    a: int
    b: tuple[int, ...] = ()


def test_a_value_is_pickled():
    assert pickle.loads(pickle.dumps(Sent(1, (2, 3)))) == Sent(1, (2, 3))
