"""Checks a tree against the schema: the first thing wrong, as one line with its place and a way out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.checks import validated
from kvcache_sim.scenario.pydantics_core import ValidationError
from kvcache_sim.scenario.section import Section, sections_in
from kvcache_sim.scenario.yaml_tree import Path, Tree
from kvcache_sim.spelling import close_matches
from kvcache_sim.tiers import LOAD_EDGES

M = TypeVar("M", bound=Section)
T = TypeVar("T")

#: What pydantic says → what we say was expected, by error type.
_EXPECTED = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "string_type": "text",
    "list_type": f"a list, such as [{LOAD_EDGES[0]}]",
    "dict_type": "a mapping",
    "model_type": "a mapping of settings",
    "finite_number": "a finite number",
    "string_pattern_mismatch": "at most 64 letters, digits, dots, dashes and underscores",
}


#: The keys that a size or a number given for a whole section may have been meant for.
_SIZES = ("capacity", "machines", "policy", "degree", "tokens")


def check(model: type[M], values: Mapping[str, Any], tree: Tree, at: Path = ()) -> M:
    """Return ``values`` (which stand at ``at`` in the tree) as ``model``.

    Raises UsageError for the first problem in the order of the file's keys: ``file:line:col: what; got;
    expected; hint``.
    """
    try:
        return validated(model, values)
    except ValidationError as error:
        raise _refusal(model, _first(error.errors(include_url=False)), values, (tree, at)) from None


def _first(problems: list[Any]) -> Any:
    """Return the problem to tell: an unknown key before what it leaves missing; of a union, the arm meant."""
    for problem in problems:
        if problem["type"] == "extra_forbidden":
            return problem
    same = [problem for problem in problems if problem["loc"][:2] == problems[0]["loc"][:2]]
    return max(same, key=lambda problem: len(problem["loc"]))


def _refusal(
    model: type[Section], problem: Any, values: Mapping[str, Any], stands: tuple[Tree, Path]
) -> UsageError:
    tree, at = stands
    loc = _as_written(problem["loc"], values, problem["type"] == "missing")
    path: Path = (*at, *loc)
    where = tree.place(path)
    key = dotted(path)
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        return UsageError(f"unknown key {key!r}", where=where, hint=_did_you_mean(model, loc))
    if kind == "missing":
        return UsageError(f"{key} is missing", where=tree.place(path[:-1]))
    inner = context.get("error")
    if isinstance(inner, ValueError) and inner.args and isinstance(inner.args[0], UsageError):
        cause = inner.args[0]
        return UsageError(
            f"{key}: {cause.what}", where=where, got=cause.got, expected=cause.expected, hint=cause.hint
        )
    got = repr(problem["input"])
    got = got if len(got) <= 60 else got[:57] + "..."
    if kind == "literal_error":
        choices = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        return UsageError(
            f"{key}: no such choice", where=where, got=got, expected=f"one of {', '.join(choices)}",
            hint=_near(str(problem["input"]), choices),
        )  # fmt: skip
    expected = _EXPECTED.get(kind, problem["msg"].removeprefix("Input should be ").removeprefix("a valid "))
    hint = "yes, no, on and off are plain text in YAML 1.2" if kind == "bool_type" else ""
    if kind == "model_type" and (own := [name for name in _keys_at(model, loc) if name in _SIZES]):
        hint = f"did you mean '{key}.{own[0]}'?"
    if (kind, key) == ("list_type", "machines"):
        hint = "how many equal ones there are is 'cluster.machines'"
    return UsageError(f"{key}: not usable", where=where, got=got, expected=expected, hint=hint)


def at_place(tree: Tree, path: Path, make: Callable[[], T]) -> T:
    """Return ``make()``; its UsageError is raised again with the place where ``path`` was written."""
    try:
        return make()
    except UsageError as error:
        own = error.where and error.where != dotted(path)
        where = tree.place(path)
        what = f"{error.where}: {error.what}" if own else f"{dotted(path)}: {error.what}"
        raise UsageError(what, where, error.got, error.expected, error.hint) from None


def dotted(path: Path) -> str:
    """Return a path as people write it: ``machines[0].tiers.cpu``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def _as_written(loc: Path, values: Any, missing: bool) -> Path:
    """Return the steps of a problem's path that are keys and places of what was written.

    The others name the branch of a union that pydantic tried; a missing key is the last step.
    """
    path: list[str | int] = []
    node = values
    for depth, step in enumerate(loc):
        inside = isinstance(step, int) and isinstance(node, list | tuple) and step < len(node)
        if inside or (isinstance(node, Mapping) and step in node):
            path.append(step)
            node = node[step]
        elif missing and depth == len(loc) - 1:
            path.append(step)
    return tuple(path)


def _did_you_mean(model: type[Section], loc: Path) -> str:
    from kvcache_sim.scenario.other_words import meant_by

    known = _keys_at(model, loc[:-1])
    return meant_by(model, str(loc[-1]), known) or f"known keys: {', '.join(known)}"


def _near(word: str, known: list[str]) -> str:
    close = close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def _keys_at(model: type[Section], path: Path) -> list[str]:
    """Return the keys of the section that ``path`` leads to."""
    section: type[Section] = model
    for step in path:
        field = section.model_fields.get(str(step))
        if field is not None:
            section = next(sections_in(field.hint), section)
    return list(section.model_fields)
