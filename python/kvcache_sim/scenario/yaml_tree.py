"""Strict YAML: text to plain values, with the line and column of every key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from kvcache_sim.errors import UsageError

#: Path of a value inside a tree: keys and list indices.
Path = tuple[str | int, ...]

_MAX_VALUES = 10_000
_MAX_DEPTH = 20
#: Size limit of a scenario, in bytes.
MAX_BYTES = 1 << 20
_KINDS = ("str", "int", "float", "bool", "null", "seq", "map", "timestamp", "merge", "value")
_INTEGER = r"[-+]?(0|[1-9][0-9]*)"
_FLOAT = r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
#: Text that is a plain scalar in any context: it needs no YAML parser.
_PLAIN = r"[A-Za-z0-9/](?:[A-Za-z0-9._/+-]| (?=[A-Za-z0-9._/+]))*"
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
