"""Words of shell text: quotes, escapes and expansions, without splitting into commands.

An expansion of a variable that the text does not set, and the output of a command, stay as they are written
and are listed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.launch.arithmetic import number_of
from kvcache_sim.scenario.launch.echo import shown

WHERE = "--from"
#: Characters that end a word.
STOPS = " \t\r\n;&|()<>"
#: Most characters that expansions may add to a text, and most levels of expansions in each other.
_MOST_ADDED, _MOST_LEVELS = 1 << 20, 20
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_BRACED = re.compile(r"(#?)([A-Za-z_]\w*|[0-9@*#?$!])(\[(?:[@*]|\d{1,4})\])?(?:(:?[-=+?])(.*))?", re.S)
#: What stands for a value in documentation: ``<model>``.
PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./-]{0,60}>")
_JSON = re.compile(r"\{\s*\"")
_TEMPLATE = re.compile(r"\$?\{\{[^{}\n]{0,200}\}\}")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


@dataclass
class Command:
    """A command: its words, the variables that it sees, and its redirections.

    ``conditional``: it is inside a branch or a loop. ``output``: the file that it writes.
    """

    words: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    redirections: list[str] = field(default_factory=list)
    conditional: bool = False
    output: str = ""


@dataclass
class Shell:
    """The parts of a text: commands, the files that it writes, and expansions that nothing in it resolves.

    ``unset`` maps the text of such an expansion to the variable to set, or to "" for a command's output.
    """

    commands: list[Command] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    unset: dict[str, str] = field(default_factory=dict)
    variables: dict[str, list[str]] = field(default_factory=dict)
    #: Names of variables that commands see, in order.
    exported: dict[str, None] = field(default_factory=dict)
    #: Variables that a branch or a loop sets: their value is not known.
    undecided: set[str] = field(default_factory=set)
    added: int = 0
    depth: int = 0


def refusal(what: str, got: str = "") -> UsageError:
    """Return the refusal of a text."""
    return UsageError(what, where=WHERE, got=repr(shown(got[:200]))[:60] if got else "")


class WordReader:
    """A position in a text, whose words are read from there."""

    def __init__(self, text: str, shell: Shell, level: int = 0) -> None:
        self.text, self.at, self.shell, self.level = text, 0, shell, level
        #: Variables that are set before the command that is being read.
        self.assigned: dict[str, list[str]] = {}
        self.may_have_json = True
        if level > _MOST_LEVELS:
            raise refusal("expansions in each other", text)

    def fields(self, stops: str, *, split: bool = False, quotes: bool = True) -> list[str]:
        """Read up to one of ``stops``; an expansion without quotes is split into words if ``split``.

        Without ``quotes`` the text is that of double quotes or of a here-document.
        """
        fields, current, begun = list[str](), list[str](), False
        text = self.text
        while self.at < len(text):
            if found := self._literal(stops, begun):
                current.append(found)
                begun = True
                continue
            char = text[self.at]
            if char in stops:
                break
            values = [""]
            if char == "'" and quotes:
                values = [self._until("'")]
            elif char == '"' and quotes:
                values = self._double()
            elif char == "\\":
                values = [self._escaped(quotes)]
                begun = begun or values != [""]
            elif char in "$`":
                values = self._expansion(quotes)
                if not split:
                    values = [" ".join(values)]
                elif "".join(values) not in self.shell.unset:
                    values = [part for value in values for part in value.split()]
            else:
                values = [char]
                self.at += 1
            begun = begun or (bool(values) and char != "\\")
            self._extend(fields, current, values)
        return [*fields, "".join(current)] if begun or not split else fields

    def _literal(self, stops: str, begun: bool) -> str:
        """Read a placeholder, a template or unquoted JSON, whose brackets and blanks belong to the word."""
        if not stops or self.text[self.at] not in "<{$":
            return ""
        if not begun and self.may_have_json and (found := _JSON.match(self.text, self.at)):
            try:
                end = json.JSONDecoder().raw_decode(self.text, self.at)[1]
            except (ValueError, RecursionError):
                self.may_have_json = False  # each attempt may read all that is left
                return ""
            read, self.at = self.text[self.at : end], end
            return read
        found = PLACEHOLDER.match(self.text, self.at) or _TEMPLATE.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        self.shell.unset[found[0]] = ""
        return found[0]

    @staticmethod
    def _extend(fields: list[str], current: list[str], values: list[str]) -> None:
        """Append words to the one being read: each after the first begins another."""
        for index, value in enumerate(values):
            if index:
                fields.append("".join(current))
                current.clear()
            current.append(value)

    def _until(self, end: str) -> str:
        stop = self.text.find(end, self.at + 1)
        if stop < 0:
            raise refusal("not a command line: a quote is not closed", self.text[self.at :])
        read, self.at = self.text[self.at + 1 : stop], stop + 1
        return read

    def _double(self) -> list[str]:
        """Read a text in double quotes; several words for ``"${X[@]}"``."""
        start, self.at = self.at, self.at + 1
        fields, current = list[str](), list[str]()
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\":
                current.append(self._escaped(quotes=False))
            elif char in "$`":
                whole = re.compile(r"\"\$\{\w+\[@\]\}\"").match(self.text, start)
                self._extend(
                    fields, current, self._expansion(False) if whole else [" ".join(self._expansion(False))]
                )
                if whole and not (fields or "".join(current)):
                    self.at += 1
                    return []
            else:
                current.append(char)
                self.at += 1
        if self.at >= len(self.text):
            raise refusal("not a command line: a quote is not closed", self.text[start:])
        self.at += 1
        return [*fields, "".join(current)]

    def _escaped(self, quotes: bool) -> str:
        char = self.text[self.at + 1 : self.at + 2]
        self.at += 1 + len(char)
        if char == "\n":
            return ""
        return char if quotes or char in ("$", "`", '"', "\\") else f"\\{char}"

    def _expansion(self, quotes: bool) -> list[str]:
        """Read an expansion: its words, or its own text where nothing in the text resolves it."""
        start, text = self.at, self.text
        if text[start] == "`":
            self._until("`")
            return [self._unset(start, "")]
        if text.startswith("$'", start) and quotes:
            self.at += 1
            end = re.compile(r"'((?:[^'\\]|\\.)*)'", re.S).match(text, self.at)
            if end is None:
                raise refusal("not a command line: a quote is not closed", text[start:])
            self.at = end.end()
            return [re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), end[1])]
        if text.startswith("$((", start):
            inner = self._closed(start + 1, "(", ")")[1:-1]
            number = number_of("".join(WordReader(inner, self.shell, self.level + 1).fields("")), self._value)
            names = [name for name in re.findall(r"[A-Za-z_]\w*", inner) if self._value(name) is None]
            return [self._unset(start, "".join(names[:1])) if number is None else str(number)]
        if text.startswith("$(", start):
            self._closed(start + 1, "(", ")")
            return [self._unset(start, "")]
        if text.startswith("${", start):
            return self._braced(start, self._closed(start + 1, "{", "}"))
        found = _NAME.match(text, start + 1)
        self.at = found.end() if found else start + 1
        if found is None:
            return ["$"]
        value = self._value(found[0])
        return [self._unset(start, found[0])] if value is None else self._added([value])

    def _closed(self, start: int, opening: str, closing: str) -> str:
        """Return what stands between brackets, and set the position after them."""
        depth = 0
        for found in re.compile(rf"[{re.escape(opening + closing)}]").finditer(self.text, start):
            depth += 1 if found[0] == opening else -1
            if not depth:
                self.at = found.end()
                return self.text[start + 1 : found.start()]
        raise refusal("an expansion that is not closed", self.text[start - 1 :])

    def _braced(self, start: int, inner: str) -> list[str]:
        found = _BRACED.fullmatch(inner)
        if found is None:
            return [self._unset(start, (_NAME.match(inner) or [""])[0])]
        count, name, index, operator, word = found.groups()
        values = None if name in self.shell.undecided else self._values(name)
        if values is not None and index and index[1:-1].isdigit():
            values = values[int(index[1:-1]) :][:1]
        if count:
            number = None if values is None else len(values) if index else len(" ".join(values))
            return [self._unset(start, name) if number is None else str(number)]
        if operator and name not in self.shell.undecided:
            empty = values is None or (operator[0] == ":" and not "".join(values))
            if (operator[-1] in "-=" and empty) or (operator[-1] == "+" and not empty):
                values = ["".join(WordReader(word, self.shell, self.level + 1).fields(""))]
                if operator[-1] == "=":
                    self.shell.variables[name] = values
            elif operator[-1] == "+":
                values = [""]
        return [self._unset(start, name)] if values is None else self._added(values)

    def _values(self, name: str) -> list[str] | None:
        return self.assigned.get(name) or self.shell.variables.get(name)

    def _value(self, name: str) -> str | None:
        """Return a variable's value; None if the text does not set it, or sets it in a branch."""
        values = None if name in self.shell.undecided else self._values(name)
        return None if values is None else " ".join(values)

    def _added(self, values: list[str]) -> list[str]:
        self.shell.added += sum(map(len, values))
        if self.shell.added > _MOST_ADDED:
            raise refusal("variables that expand to too much")
        return values

    def _unset(self, start: int, name: str) -> str:
        text = self.text[start : self.at]
        self.shell.unset[text] = name
        return text
