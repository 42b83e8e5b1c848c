"""Reader of shell text: its commands, with quotes, continuations, variables and here-documents resolved.

Nothing is run, and nothing is read from the reader's own environment: an expansion of a variable that the
text does not set, and the output of a command, stay as they are written and are listed.
"""

from __future__ import annotations

import re

from kvcache_sim.scenario.launch.shell_words import PLACEHOLDER, STOPS, Command, Shell, WordReader, refusal

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
_DECLARING = ("export", "declare", "typeset", "local", "readonly", "set")
_OPENS, _CLOSES = ("if", "for", "while", "until", "case", "select"), ("fi", "done", "esac")
_KEYWORDS = ("if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "time", *_CLOSES)
_TESTS = ("[", "[[", "test")


def read_shell(text: str, shell: Shell | None = None) -> Shell:
    """Read the commands of a text. Raises UsageError for a quote or an expansion that is not closed."""
    shell = Shell() if shell is None else shell
    _Reader(_PROMPT.sub("", text.replace("\r\n", "\n")), shell).read()
    return shell


class _Reader(WordReader):
    """A position in a text, and the command that is being read."""

    def __init__(self, text: str, shell: Shell, level: int = 0) -> None:
        super().__init__(text, shell, level)
        self.command = Command()
        self.waiting: list[tuple[Command, str, bool]] = []
        self.after_test = False

    def read(self) -> None:
        """Read all commands."""
        while self.at < len(self.text):
            char = self.text[self.at]
            begun = bool(self.command.words)
            if char in " \t\r":
                self.at += 1
            elif (found := _CONTINUED.match(self.text, self.at)) or (
                char == "\n"
                and begun
                and not self.waiting
                and (found := _FLAG_NEXT.match(self.text, self.at))
            ):
                self.at = found.end()
            elif char == "\n":
                self._here_documents()
                self._end()
                self.after_test = False
            elif char == "#":
                self.at = self._find("\n", self.at) or len(self.text)
            elif PLACEHOLDER.match(self.text, self.at):
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

    def _values(self, name: str) -> list[str] | None:
        assigned = None if self.command.words else self.assigned.get(name)  # X=1 command $X: not this X
        return assigned or self.shell.variables.get(name)

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
            raise refusal(f"more than {_MOST_COMMANDS:,} commands")
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
            target = "".join(self.fields(STOPS))
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
                body = "".join(WordReader(body, self.shell, self.level + 1).fields("", quotes=False))
            if any(word.rpartition("/")[2] in ("sh", "bash", "ssh", "zsh") for word in command.words):
                _Reader(body, self.shell, self.level + 1).read()
            elif not self._write(command, body):
                command.redirections.append(body)
        self.waiting = []

    def _write(self, command: Command, body: str) -> bool:
        """Keep the files that the text writes; return True if it writes one."""
        targets = [
            word for word in command.words[1:] if command.words[0] == "tee" and not word.startswith("-")
        ]
        names = [name for name in (command.output, *targets) if name]
        self.shell.files |= dict.fromkeys(names, body)
        return bool(names)

    def _word(self) -> None:
        """Read a word: an assignment before a command, or one or more words of it."""
        words, declaring = self.command.words, self.command.words[:1] and self.command.words[0] in _DECLARING
        found = _ASSIGNED.match(self.text, self.at)
        if found is None or not (not words or words[-1] in _KEYWORDS or declaring):
            words += self.fields(STOPS, split=True)
            return
        self.at = found.end()
        values = self._array() if self.text.startswith("(", self.at) else ["".join(self.fields(STOPS))]
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
                raise refusal("not a list of words", self.text[self.at :])
            else:
                values += self.fields(STOPS, split=True)
        self.at += 1
        return values
