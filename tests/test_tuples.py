"""``kvcache_sim.tuples.NamedTuple`` against typing's."""

from __future__ import annotations

import copy
import pickle
import types
import typing

import pytest
from kvcache_sim import tuples


def shapes(base):
    """Return classes of named tuples derived from such a base."""

    class Plain(base):
        """Fields, one with a default."""

        a: int
        b: str = "b"

    class Own(base):
        """With members of its own."""

        a: int
        known = 3

        @property
        def twice(self) -> int:
            return 2 * self.a

        @classmethod
        def of(cls, text: str):
            return cls(int(text))

        def __str__(self) -> str:
            return f"<{self.a}>"

    class Nothing(base):
        """No fields."""

    return Plain, Own, Nothing


OURS, THEIRS = shapes(tuples.NamedTuple), shapes(typing.NamedTuple)


@pytest.mark.parametrize(("ours", "theirs"), [*zip(OURS, THEIRS, strict=True)])
def test_a_class_is_as_typings(ours, theirs):
    for name in (
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__bases__",
        "_fields",
        "_field_defaults",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.__slots__ == theirs.__slots__ == ()
    assert typing.get_type_hints(ours) == typing.get_type_hints(theirs)
    assert ours.__match_args__ == theirs.__match_args__


def test_a_value_is_as_typings():
    (plain, own, nothing), (their_plain, their_own, their_nothing) = OURS, THEIRS
    for mine, other in ((plain(1), their_plain(1)), (own(2), their_own(2)), (nothing(), their_nothing())):
        assert (repr(mine), str(mine), tuple(mine)) == (repr(other), str(other), tuple(other))
        assert mine == other
        assert hash(mine) == hash(other)
        assert mine._asdict() == other._asdict()
        assert copy.copy(mine) == mine
    assert own.of("4").twice == 8
    assert plain(1)._replace(b="c") == (1, "c")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        plain()
    with pytest.raises(AttributeError):
        plain(1).a = 2


def test_a_field_without_a_default_comes_first():
    wrong = {"__module__": __name__, "__annotations__": {"a": "int", "b": "int"}, "a": 1}
    for base in (tuples.NamedTuple, typing.NamedTuple):
        with pytest.raises(TypeError, match="default"):
            types.new_class("Wrong", (base,), exec_body=lambda body: body.update(wrong))


class Sent(tuples.NamedTuple):
    """At the top of a module, so that it can be pickled."""

    a: int


def test_a_value_is_pickled():
    assert pickle.loads(pickle.dumps(Sent(1))) == Sent(1)
