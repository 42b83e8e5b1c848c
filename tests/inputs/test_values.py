"""``kvcache_sim.base.values.Value`` is used as the standard library's frozen dataclasses are."""

import copy
import dataclasses
import pickle
from typing import ClassVar

import pytest
from kvcache_sim.base.values import Value
from msgspec import field


class Sent(Value):
    """At the top of a module, so that it can be pickled."""

    kind: ClassVar[str] = "sent"
    a: int
    b: tuple[int, ...] = ()
    c: list[int] = field(default_factory=list)


class Longer(Sent):
    """With one field more."""

    d: int = 4


@pytest.mark.parametrize(("made", "names"), [(Sent(1), "abc"), (Longer(1, (2,)), "abcd")])
def test_the_standard_library_knows_its_fields(made, names):
    assert [field.name for field in dataclasses.fields(made)] == list(names)
    assert dataclasses.asdict(made) == {name: getattr(made, name) for name in names}
    assert dataclasses.replace(made, a=2) == type(made)(2, *(getattr(made, name) for name in names[1:]))
    assert dataclasses.fields(made)[0].default is dataclasses.MISSING
    assert dataclasses.fields(made)[1].default == ()
    assert dataclasses.fields(made)[2].default_factory is list


@pytest.mark.parametrize("made", [Sent(1), Longer(1, c=[3])])
def test_copies_are_equal(made):
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made != Sent(2)


def test_equal_values_hash_alike_and_refuse_changes():
    assert hash(Sent(1, (2,), ())) == hash(Sent(1, (2,), ())) != hash(Sent(2, (2,), ()))
    with pytest.raises(AttributeError):
        Sent(1).a = 2
    with pytest.raises(TypeError, match="Missing required argument 'a'"):
        Sent()
