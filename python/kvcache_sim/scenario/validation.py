"""Validation of a tree against the schema: the first error, as one line with its location and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from msgspec import ValidationError

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.base.tiers import LOAD_EDGES
from kvcache_sim.scenario.section import Section, converted, keys
from kvcache_sim.scenario.yaml_tree import Path, Tree, dotted

M = TypeVar("M", bound=Section)

#: The name of a run or a sweep, part of its directory's name, and the words for it.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
NAME_EXPECTED = "at most 64 characters: A-Z, a-z, 0-9, dots, dashes and underscores"
#: msgspec's words for expected values → kvsim's words; limits stay as they are.
_EXPECTED = {
    r"`(?:int|float)` >= (.*?)(?:\.0)?": r"greater than or equal to \1",
    r"`(?:int|float)` <= (.*?)(?:\.0)?": r"less than or equal to \1",
    r"`(?:int|float)` > (.*?)(?:\.0)?": r"greater than \1",
    r"`(?:int|float)` < (.*?)(?:\.0)?": r"less than \1",
    r"`str` matching .*": NAME_EXPECTED,
    r"`bool.*": "true or false",
    r"`int.*": "a whole number",
    r"`float.*": "number",
    r"`str.*": "text",
    r"`array.*": f"a list, such as [{LOAD_EDGES[0]}]",
    r"`object.*": "a mapping",
}
#: Keys that a size or number in place of a whole section may have been meant for.
_SIZES = ("capacity", "machines", "policy", "degree", "tokens")


def check(model: type[M], values: Mapping[str, Any], tree: Tree, at: Path = ()) -> M:
    """Return ``values`` (at path ``at`` in the tree) as ``model``.

    Raises UsageError for an unknown key, else for the first problem in the order of the file's keys:
    ``file:line:col: what; got; expected; hint``.
    """
    try:
        return converted(model, values)
    except ValidationError as error:
        for path, known in _unknown_keys(model, values, at):
            raise _unknown(model, tree, path, known) from None
        raise _refusal(model, values, tree, at, error) from None


def _refusal(hint: Any, value: Any, tree: Tree, path: Path, error: ValidationError) -> UsageError:
    """Return the error of a value, entry by entry: msgspec does not name entries of mappings."""
    for step, inner, inner_value in _entries(hint, value):
        try:
            converted(inner, inner_value)
        except ValidationError as wrong:
            return _refusal(inner, inner_value, tree, (*path, step), wrong)
    section, where = _section(hint), tree.location(path)
    if section is not None and isinstance(value, Mapping):
        lacking = next(key for key, field in keys(section).items() if field.required and key not in value)
        return UsageError(f"{dotted((*path, lacking))} is missing", where=where)
    return _unusable(hint, value, error, dotted(path), where)


def _entries(hint: Any, value: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Yield key, type and value of the known entries of a mapping or list."""
    for arm in _arms(hint):
        kinds = get_args(arm)
        if arm is _section(arm) and isinstance(value, Mapping):
            known = keys(arm)
            yield from ((key, known[key].type, entry) for key, entry in value.items() if key in known)
        elif get_origin(arm) is dict and isinstance(value, Mapping):
            for key, entry in value.items():
                yield key, kinds[0], key
                yield key, kinds[1], entry
        elif get_origin(arm) is list and isinstance(value, list):
            yield from ((index, kinds[0], entry) for index, entry in enumerate(value))


def _arms(hint: Any) -> Iterator[Any]:
    """Yield the types of a union, without metadata."""
    if get_origin(hint) in (Annotated, Union, UnionType):
        for part in get_args(hint):
            yield from _arms(part)
    else:
        yield hint


def _section(hint: Any) -> type[Section] | None:
    return next((arm for arm in _arms(hint) if isinstance(arm, type) and issubclass(arm, Section)), None)


def _unknown_keys(hint: Any, value: Any, path: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the path of each unknown key in a value, and the keys of its section; innermost first."""
    for step, inner, entry in _entries(hint, value):
        yield from _unknown_keys(inner, entry, (*path, step))
    section = _section(hint)
    if section is not None and isinstance(value, Mapping):
        known = list(keys(section))
        yield from (((*path, key), known) for key in value if key not in known)


def _unknown(model: type[Section], tree: Tree, path: Path, known: list[str]) -> UsageError:
    from kvcache_sim.scenario.key_suggestions import meant_by

    hint = meant_by(model, path, known) or f"known keys: {', '.join(known)}"
    return UsageError(f"unknown key {dotted(path)!r}", where=tree.location(path), hint=hint)


def _unusable(hint: Any, value: Any, error: ValidationError, key: str, where: str) -> UsageError:
    """Return the error of a single value, by its key and location."""
    if error.__cause__ is not None:
        cause = error.__cause__.args[0]
        return UsageError(f"{key}: {cause.what}", where, cause.got, cause.expected, cause.hint)
    got = repr(value)
    got = got if len(got) <= 60 else got[:57] + "..."
    section = _section(hint)
    if words := [str(word) for arm in _arms(hint) if get_origin(arm) is Literal for word in get_args(arm)]:
        what, expected, remedy = "no such choice", f"one of {', '.join(words)}", _near(str(value), words)
    elif section is not None:
        what, expected, remedy = "not usable", "a mapping of settings", ""
        if sizes := [name for name in keys(section) if name in _SIZES]:
            remedy = f"did you mean '{key}.{sizes[0]}'?"
    else:
        what, expected, remedy = "not usable", _expected(str(error), value), ""
        if expected == _EXPECTED["`bool.*"]:
            remedy = "yes, no, on and off are plain text in YAML 1.2"
        elif expected.startswith("a list") and key == "machines":
            remedy = "how many equal ones there are is 'cluster.machines'"
    return UsageError(f"{key}: {what}", where=where, got=got, expected=expected, hint=remedy)


def _expected(said: str, value: object) -> str:
    """Return the value that msgspec expected, in kvsim's words."""
    if isinstance(value, float) and not isfinite(value):
        return "a finite number"
    wanted = said.removeprefix("Expected ").partition(", got ")[0]
    return next(
        (
            re.sub(f"^{pattern}$", ours, wanted)
            for pattern, ours in _EXPECTED.items()
            if re.fullmatch(pattern, wanted)
        ),
        wanted,
    )


def _near(word: str, known: list[str]) -> str:
    close = close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else ""
