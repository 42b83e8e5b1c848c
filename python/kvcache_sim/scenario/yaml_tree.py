"""The written values of a scenario: strict YAML with the line and column of every key, and ``--set``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, TypeVar

from kvcache_sim.base.errors import UsageError

_T = TypeVar("_T")
#: Path of a value inside a tree: keys and list indices.
Path = tuple[str | int, ...]

_MAX_VALUES = 10_000
_MAX_DEPTH = 20
#: Size limit of a scenario, in bytes.
MAX_BYTES = 1 << 20
_KINDS = ("str", "int", "float", "bool", "null", "seq", "map", "timestamp", "merge", "value")
_INTEGER = r"[-+]?(0|[1-9][0-9]*)"
_FLOAT = r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
#: Text that is a plain scalar behind a key: it needs no YAML parser.
_PLAIN = r"[A-Za-z0-9/](?:[A-Za-z0-9._/+@=,-]|:(?=[A-Za-z0-9./])| (?=[A-Za-z0-9._/+]))*"
_TAGS = {f"tag:yaml.org,2002:{name}" for name in _KINDS}
_WORDS: dict[str, object] = {"": None, "~": None, "null": None, "true": True, "false": False}
_NOT_FINITE = {".nan", ".inf", "-.inf", "+.inf"}


@dataclass
class Tree:
    """Plain values (dict, list, str, int, float, bool, None) and the location of each.

    ``locations`` maps a path to ``file:line:col`` of its key, or to the option that set it.
    """

    values: dict[str, Any] = field(default_factory=dict)
    locations: dict[Path, str] = field(default_factory=dict)
    source: str = ""

    def location(self, path: Path) -> str:
        """Return the location of ``path``, or of a value inside it, or of its nearest ancestor."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.locations:
                return self.locations[path[:length]]
            for known, location in self.locations.items():
                if known[:length] == path[:length]:
                    return location
        return self.source


def at_location(tree: Tree, path: Path, make: Callable[[], _T]) -> _T:
    """Return ``make()``; its UsageError is raised again with the location of ``path``."""
    try:
        return make()
    except UsageError as error:
        is_elsewhere = error.where and error.where != dotted(path)
        where = tree.location(path)
        what = f"{error.where}: {error.what}" if is_elsewhere else f"{dotted(path)}: {error.what}"
        raise UsageError(what, where, error.got, error.expected, error.hint) from None


def dotted(path: Path) -> str:
    """Return a path in dotted syntax: ``machines[0].tiers.cpu``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def read_tree(data: bytes, source: str) -> Tree:
    """Return the tree of one YAML document, with YAML 1.2 scalars: ``yes``, ``017`` and ``1:30`` are text.

    Aliases are expanded, up to 10,000 values in all. Raises UsageError with ``source:line:col`` for text that
    is not UTF-8 or not YAML, a duplicate or non-text key, a tag, or a document that is no mapping.
    """
    if not data:
        return Tree(source=source)
    import ruamel.yaml
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(data) > MAX_BYTES:
        raise UsageError(
            "scenario too large", where=source, got=f"{len(data)} bytes", expected="at most 1 MiB"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError("not UTF-8 text", where=f"{source}:{line}", hint="save the file as UTF-8") from None
    try:
        root = ruamel.yaml.YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        raise UsageError(f"not YAML: {error.problem or error.context}", where=where) from None
    except (YAMLError, RecursionError, ValueError) as error:  # ValueError: a character that is none
        what = " ".join(str(error).split())[:120]
        raise UsageError(f"not YAML: {what}", where=source) from None
    tree = Tree(source=source)
    if root is None:
        return tree
    value = _Reader(tree).convert(root, (), 0)
    if not isinstance(value, dict):
        raise UsageError("not a mapping of settings", where=f"{source}:1", expected="lines such as 'seed: 0'")
    tree.values = value
    return tree


def parse_value(text: str, where: str) -> Any:
    """Return the value of one ``--set``: a scalar, or a flow list or mapping such as ``[a, b]``."""
    if re.fullmatch(_PLAIN, text):
        return _plain_scalar(text)
    try:
        tree = read_tree(f"value: {text}".encode(), where)
    except UsageError as error:
        raise UsageError(error.what, where=where, got=repr(text)) from None
    if set(tree.values) != {"value"}:
        raise UsageError("not one value", where=where, got=repr(text))
    return tree.values["value"]


def _plain_scalar(text: str) -> object:
    """Return the value of an unquoted scalar in YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if re.fullmatch(_INTEGER, text) and len(text) < 60:
        return int(text)
    if re.fullmatch(_FLOAT, text) and len(text) < 60:
        return float(text)
    return text


class _Reader:
    """Converts composed nodes into plain values, counting them."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.count = 0

    def convert(self, node: Any, path: Path, depth: int) -> Any:
        self.count += 1
        if self.count > _MAX_VALUES or depth > _MAX_DEPTH:
            raise self._refuse(node, "aliases or nesting expand to too much")
        kind = node.id
        if node.tag not in _TAGS:
            raise self._refuse(node, f"tag {node.tag} is not allowed")
        if kind == "scalar":
            return self._scalar(node)
        if kind == "sequence":
            for index, item in enumerate(node.value):
                self.tree.locations[(*path, index)] = self._location(item)
            return [self.convert(item, (*path, index), depth + 1) for index, item in enumerate(node.value)]
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, mapping)
            self.tree.locations[(*path, key)] = self._location(key_node)
            mapping[key] = self.convert(value_node, (*path, key), depth + 1)
        return mapping

    def _key(self, node: Any, before: dict[str, Any]) -> str:
        if node.id != "scalar":
            raise self._refuse(node, "a key must be a word")
        if node.value in before:
            raise self._refuse(node, f"duplicate key {node.value!r}")
        return str(node.value)

    def _scalar(self, node: Any) -> object:
        text = node.value
        if node.style is not None:
            return text
        if text.lower() in _NOT_FINITE:
            raise self._refuse(node, f"{text} is not a finite number")
        return _plain_scalar(text)

    def _location(self, node: Any) -> str:
        return f"{self.tree.source}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def _refuse(self, node: Any, what: str) -> UsageError:
        return UsageError(what, where=self._location(node))


def absolute(directory: FilePath, name: str) -> str:
    """Return the absolute path of ``name`` relative to ``directory``; ``-`` (standard input) stays."""
    return name if name == "-" else str((directory / name).absolute())


def setting_file(tree: Tree, path: Path, directory: FilePath, name: str) -> str:
    """Return the absolute path of a file that the setting at ``path`` names.

    Args:
        tree: The settings with the location of each.
        path: The setting, such as ``("replica", "step_time")``.
        directory: The folder of the scenario.
        name: The file as it is written.

    Returns:
        The file of the current folder if ``--set`` names it and it exists there, else that of ``directory``.
    """
    here = tree.location(path).startswith("--set") and (FilePath.cwd() / name).exists()
    return absolute(FilePath.cwd() if here else directory, name)


_STEP = r"([^.\[\]]+)((?:\[\d{1,18}\])*)"
_MAX_INDEX = 9_999


def apply_override(tree: Tree, assignment: str) -> None:
    """Apply an assignment (``tiers.cpu.capacity=80GiB``, ``machines[0].…=…``) to a tree.

    Missing mappings and list entries are created; the value is YAML, and ``null`` removes a setting. Raises
    UsageError for an invalid assignment and for a path through a plain value.
    """
    key, equals, text = assignment.partition("=")
    where = f"--set {key.strip()}"
    if not equals:
        raise UsageError("not an assignment", where="--set", got=repr(assignment), expected="KEY=VALUE")
    path = parse_path(key.strip(), where)
    set_value(tree, path, parse_value(text, where), where)


def parse_path(key: str, where: str) -> Path:
    """Return the path of a dotted key: ``machines[0].tiers.cpu`` → ("machines", 0, "tiers", "cpu")."""
    path: list[str | int] = []
    for step in key.split("."):
        match = re.fullmatch(_STEP, step)
        if match is None:
            raise UsageError(
                "not a key", where=where, got=repr(key), expected="words joined by dots, such as a.b[0].c"
            )
        path.append(match[1])
        path += [int(index) for index in re.findall(r"\d+", match[2])]
    if any(isinstance(step, int) and step > _MAX_INDEX for step in path):
        raise UsageError("index too large", where=where, got=repr(key))
    return tuple(path)


def set_value(tree: Tree, path: Path, value: Any, where: str) -> None:
    """Write ``value`` at ``path``, creating missing parts of the path; record ``where`` as its source."""
    node: Any = tree.values
    for depth, step in enumerate(path):
        last = depth == len(path) - 1
        node = _enter(node, step, last, where)
        if last:
            node[step] = value
        else:
            if node[step] is None:
                node[step] = [] if isinstance(path[depth + 1], int) else {}
            node = node[step]
    for stale in [known for known in tree.locations if known[: len(path)] == path]:
        del tree.locations[stale]
    tree.locations[path] = where


def _enter(node: Any, step: str | int, last: bool, where: str) -> Any:
    """Return ``node`` ready for ``node[step]``; a list is filled up with empty mappings."""
    if isinstance(step, int):
        if not isinstance(node, list):
            raise UsageError("not a list", where=where, hint=f"[{step}] needs a list before it")
        while len(node) <= step:
            node.append({})
    elif not isinstance(node, dict):
        raise UsageError("has no parts", where=where, got=f"a plain value before {step!r}")
    elif not last and step not in node:
        node[step] = None
    return node
