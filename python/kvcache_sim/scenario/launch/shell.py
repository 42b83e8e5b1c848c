"""Reader of shell text: its commands, with quotes, continuations, variables and here-documents resolved.

Nothing is run, and nothing is read from the reader's own environment: an expansion of a variable that the
text does not set, and the output of a command, stay as they are written and are listed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.launch.arithmetic import number_of

WHERE = "--from"
#: Most characters that expansions may add to a text, and most levels of expansions in each other.
_MOST_ADDED, _MOST_LEVELS = 1 << 20, 20
_MOST_COMMANDS = 2_000
#: The prompt before a command of a transcript, and the fences of Markdown.
_PROMPT = re.compile(
    r"^[ \t]*(?:(?:\([\w.-]+\)[ \t]*)?(?:\[?[\w.-]+@[\w.-]+[^\n$#%'\"]{0,80}[$#%]|[$%])[ \t]+|!(?=\w)"
    r"|(?:PS )?[A-Z]:\\[^\n>]{0,80}>[ \t]*)|^[ \t]*```[^`\n]*$",
    re.M,
)
#: The end of a line that continues, by any shell's character; a comment may follow it.
_CONTINUED = re.compile(r"[\\^`][ \t]*\n|\\[ \t]+#[^\n]*\n")
#: Lines that begin with a flag continue the one before, as in a text that lost its backslashes.
_FLAG_NEXT = re.compile(r"\n(?:[ \t]*#[^\n]*\n)*[ \t]*(?=--?[A-Za-z])")
_REDIRECTION = re.compile(r"(?:\d*|&)(<<<|<<-?|<>|<&|<|>>|>\||>&|>)[ \t]*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_BRACED = re.compile(r"(#?)([A-Za-z_]\w*|[0-9@*#?$!])(\[(?:[@*]|\d{1,4})\])?(?:(:?[-=+?])(.*))?", re.S)
#: What stands for a value in documentation: ``<model>``.
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./-]{0,60}>")
_JSON = re.compile(r"\{\s*\"")
_TEMPLATE = re.compile(r"\$?\{\{[^{}\n]{0,200}\}\}")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_DECLARING = ("export", "declare", "typeset", "local", "readonly", "set")
_OPENS, _CLOSES = ("if", "for", "while", "until", "case", "select"), ("fi", "done", "esac")
_KEYWORDS = ("if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "time", *_CLOSES)
_TESTS = ("[", "[[", "test")


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
    """What a text leaves: commands, the files that it writes, and expansions that nothing in it resolves.

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


def read_shell(text: str, shell: Shell | None = None) -> Shell:
    """Read the commands of a text. Raises UsageError for a quote or an expansion that is not closed."""
    shell = Shell() if shell is None else shell
    _Reader(_PROMPT.sub("", text.replace("\r\n", "\n")), shell).read()
    return shell


def _refusal(what: str, got: str = "") -> UsageError:
    return UsageError(what, where=WHERE, got=repr(got)[:60] if got else None)


class _Reader:
    """A position in a text, and the command that is being read."""

    def __init__(self, text: str, shell: Shell, level: int = 0) -> None:
        self.text, self.at, self.shell, self.level = text, 0, shell, level
        self.command, self.assigned = Command(), dict[str, list[str]]()
        self.waiting: list[tuple[Command, str, bool]] = []
        self.after_test = False
        self.may_have_json = True
        if level > _MOST_LEVELS:
            raise _refusal("expansions in each other", text)

    def read(self) -> None:
        """Read all commands."""
        while self.at < len(self.text):
            char = self.text[self.at]
            begun = bool(self.command.words)
            if char in " \t\r":
                self.at += 1
            elif found := _CONTINUED.match(self.text, self.at):
                self.at = found.end()
            elif char == "\n" and begun and not self.waiting and (found := _FLAG_NEXT.match(self.text, self.at)):
                self.at = found.end()
            elif char == "\n":
                self._here_documents()
                self._end()
                self.after_test = False
            elif char == "#":
                self.at = self._find("\n", self.at) or len(self.text)
            elif _PLACEHOLDER.match(self.text, self.at):
                self._word()
            elif found := _REDIRECTION.match(self.text, self.at):
                self._redirection(found)
            elif char in ";&|()":
                self.after_test = self.text.startswith("||", self.at) or (
                    self.text.startswith("&&", self.at) and self.command.words[:1] in ([t] for t in _TESTS)
                )
                self.at += 2 if self.text[self.at : self.at + 2] in ("&&", "||", ";;") else 1
                self._end()
            else:
                self._word()
        self._here_documents()
        self._end()

    def _find(self, what: str, start: int) -> int:
        return max(self.text.find(what, start), 0)

    def _end(self) -> None:
        """End the command: an assignment, a declaration, or one that another program runs."""
        command, self.command = self.command, Command()
        assigned, self.assigned = self.assigned, {}
        words, shell = command.words, self.shell
        while words and words[0] in _KEYWORDS:
            shell.depth += (words[0] in _OPENS) - (words[0] in _CLOSES)
            del words[0]
        if words and words[0] in _OPENS:  # for X in …; case X in …
            shell.depth += 1
            shell.undecided.update(words[1:2])
        shell.depth = max(shell.depth, 0)
        if not words or words[0] in _DECLARING:
            for word in words[1:]:
                name, equals, value = word.partition("=")
                if equals:
                    assigned[name] = [value]
                if words[0] in ("export", "set") or "-x" in words:
                    shell.exported[name] = None
            self._assign(assigned)
        if not words:
            return
        if words[0] == "unset":
            for name in words[1:]:
                shell.variables.pop(name, None)
        for name in shell.exported:
            if name in shell.undecided:
                command.environment[name] = f"${name}"
                shell.unset[f"${name}"] = name
            elif name in shell.variables:
                command.environment[name] = " ".join(shell.variables[name])
        command.environment |= {name: " ".join(value) for name, value in assigned.items()}
        command.conditional = shell.depth > 0
        shell.commands.append(command)
        if len(shell.commands) > _MOST_COMMANDS:
            raise _refusal(f"more than {_MOST_COMMANDS:,} commands")
        if words[0] in ("echo", "printf") and command.output:
            said = " ".join(word for word in words[1:] if word not in ("-e", "-n", "-en"))
            self._write(command, said.replace("\\n", "\n"))

    def _assign(self, assigned: dict[str, list[str]]) -> None:
        for name, value in assigned.items():
            if self.shell.depth or self.after_test:
                self.shell.undecided.add(name)
            else:
                self.shell.variables[name] = value
                self.shell.undecided.discard(name)

    def _redirection(self, found: re.Match[str]) -> None:
        start, self.at = self.at, found.end()
        if found[1].startswith("<<") and found[1] != "<<<":
            quoted = self.text[self.at : self.at + 1] in ("'", '"', "\\")
            marker = re.compile(r"[\\'\"]?([\w.-]*)['\"]?").match(self.text, self.at)
            assert marker is not None  # it may be empty
            self.at = marker.end()
            self.waiting.append((self.command, marker[1], quoted))
        else:
            target = "".join(self._fields(" \t\r\n;&|()<>"))
            if found[1] in (">", ">>", ">|"):
                self.command.output = target
        self.command.redirections.append(self.text[start : self.at])

    def _here_documents(self) -> None:
        """Read the documents that wait for this line's end; the position is after the end of the last."""
        self.at += self.at < len(self.text)
        for command, marker, quoted in self.waiting:
            found = re.compile(rf"^[ \t]*{re.escape(marker)}[ \t]*$", re.M).search(self.text, self.at)
            end, after = found.span() if found else (len(self.text), len(self.text))
            body, self.at = self.text[self.at : end], min(after + 1, len(self.text))
            if not quoted:
                body = "".join(_Reader(body, self.shell, self.level + 1)._fields("", quotes=False))
            if any(word.rpartition("/")[2] in ("sh", "bash", "ssh", "zsh") for word in command.words):
                _Reader(body, self.shell, self.level + 1).read()
            self._write(command, body)
        self.waiting = []

    def _write(self, command: Command, body: str) -> None:
        """Keep a file that the text writes."""
        targets = [word for word in command.words[1:] if command.words[0] == "tee" and word[0] != "-"]
        for name in (command.output, *targets):
            if name:
                self.shell.files[name] = body

    def _word(self) -> None:
        """Read a word: an assignment before a command, or one or more words of it."""
        words, declaring = self.command.words, self.command.words[:1] and self.command.words[0] in _DECLARING
        found = _ASSIGNED.match(self.text, self.at)
        if found is None or not (not words or words[-1] in _KEYWORDS or declaring):
            words += self._fields(" \t\r\n;&|()<>", split=True)
            return
        self.at = found.end()
        if self.text.startswith("(", self.at):
            values = self._array()
        else:
            values = ["".join(self._fields(" \t\r\n;&|()<>"))]
        if found[2]:
            before = self.assigned.get(found[1]) or self.shell.variables.get(found[1], [])
            is_list = len(before) != 1 or self.text[found.end()] == "("
            values = before + values if is_list else [before[0] + values[0]]
        if declaring:
            words.append(f"{found[1]}={' '.join(values)}")
        else:
            self.assigned[found[1]] = values

    def _array(self) -> list[str]:
        """Read the words of ``X=(a b c)``, over several lines and with comments."""
        values: list[str] = []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] in " \t\r\n":
                self.at += 1
            elif found := _CONTINUED.match(self.text, self.at):
                self.at = found.end()
            elif self.text[self.at] == "#":
                self.at = self._find("\n", self.at) or len(self.text)
            elif self.text[self.at] in ";&|(<>":
                raise _refusal("not a list of words", self.text[self.at :])
            else:
                values += self._fields(" \t\r\n;&|()<>", split=True)
        self.at += 1
        return values

    def _fields(self, stops: str, *, split: bool = False, quotes: bool = True) -> list[str]:
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
        found = _PLACEHOLDER.match(self.text, self.at) or _TEMPLATE.match(self.text, self.at)
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
            raise _refusal("not a command line: No closing quotation", self.text[self.at :])
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
                self._extend(fields, current, self._expansion(False) if whole else [" ".join(self._expansion(False))])
                if whole and not (fields or "".join(current)):
                    self.at += 1
                    return []
            else:
                current.append(char)
                self.at += 1
        if self.at >= len(self.text):
            raise _refusal("not a command line: No closing quotation", self.text[start:])
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
                raise _refusal("not a command line: No closing quotation", text[start:])
            self.at = end.end()
            return [re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), end[1])]
        if text.startswith("$((", start):
            inner = self._closed(start + 1, "(", ")")[1:-1]
            value = number_of("".join(_Reader(inner, self.shell, self.level + 1)._fields("")), self._value)
            names = [name for name in re.findall(r"[A-Za-z_]\w*", inner) if self._value(name) is None]
            return [self._unset(start, "".join(names[:1])) if value is None else str(value)]
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
        raise _refusal("an expansion that is not closed", self.text[start - 1 :])

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
                values = ["".join(_Reader(word, self.shell, self.level + 1)._fields(""))]
                if operator[-1] == "=":
                    self.shell.variables[name] = values
            elif operator[-1] == "+":
                values = [""]
        return [self._unset(start, name)] if values is None else self._added(values)

    def _values(self, name: str) -> list[str] | None:
        own = None if self.command.words else self.assigned.get(name)  # X=1 command $X: not this X
        return own or self.shell.variables.get(name)

    def _value(self, name: str) -> str | None:
        """Return a variable's value; None if the text does not set it, or sets it in a branch."""
        values = None if name in self.shell.undecided else self._values(name)
        return None if values is None else " ".join(values)

    def _added(self, values: list[str]) -> list[str]:
        self.shell.added += sum(map(len, values))
        if self.shell.added > _MOST_ADDED:
            raise _refusal("variables that expand to too much")
        return values

    def _unset(self, start: int, name: str) -> str:
        text = self.text[start : self.at]
        self.shell.unset[text] = name
        return text
