"""Arguments of an engine as its own parser reads them: prefixes, ``--x=y``, dotted JSON, several values.

argparse takes any unambiguous beginning of a name, and of a repeated option the last; vLLM also reads ``_``
as ``-``, joins ``--x.a.b v`` to one JSON object, and numbers such as 32k (``FlexibleArgumentParser``).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.releases import Version, engine_releases, engines, parse_version
from kvcache_sim.scenario.launch.flags import Engine, Flag, Spelling, launch_engine
from kvcache_sim.scenario.launch.shell_words import WHERE

_NEGATIVE = re.compile(r"-\d+$|-\d*\.\d+$")
#: Decimals go with the decimal suffixes alone (vLLM, ``human_readable_int``).
_HUMAN = re.compile(r"(?:(\d{1,18}(?:\.\d{1,18})?)([kmgt])|(\d{1,18})([KMGT]))")
_POWERS = {suffix: power for power, suffix in enumerate("kmgt", 1)}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_MOST_STEPS = 10


class Arguments(Value):
    """An engine's model, "" if the arguments name none, and flags by their canonical names in order.

    "" is the value of a flag that stands alone, "false" that of its ``--no-`` form.
    """

    model: str
    flags: Mapping[str, str]


def read_arguments(
    engine: Engine, words: Iterable[str], release: str, usual: Iterable[str] = ()
) -> Arguments:
    """Read an engine's arguments; those of ``usual`` (of a file, of a chart) count where the line has none.

    ``release`` is as in ``vllm@0.11.2``, or "". Raises UsageError for a name with several meanings, and for a
    word that belongs to no flag.
    """
    version = release.partition("@")[2]
    reader = _Arguments(engine, _names(engine.name, version))
    reader.read(list(usual))
    reader.positional = reader.stated = ""
    reader.read(list(words))
    reader.join()
    return Arguments(reader.model, reader.flags)


def plain_number(text: str) -> str:
    """Return a number with a suffix in digits: 32k is 32,000, 32K is 32,768; another text as it is."""
    found = _HUMAN.fullmatch(text)
    if found is None:
        return text
    suffix = found[2] or found[4]
    scale = 1000 if suffix.islower() else 1024
    return str(round(Fraction(found[1] or found[3]) * scale ** _POWERS[suffix.lower()]))


class _Names(Value):
    """Names of a release, of all releases that were read, the newest first, and all names in order."""

    of_release: Mapping[str, Spelling]
    older: tuple[Mapping[str, Spelling], ...]
    ordered: tuple[str, ...]

    def any_begins(self, name: str) -> bool:
        """Return True if a name of any release begins so."""
        at = bisect_left(self.ordered, name)
        return at < len(self.ordered) and self.ordered[at].startswith(name)


@cache
def _names(engine: str, version: str) -> _Names:
    table = launch_engine(engine)
    read = engine_releases(engine).read if engine in engines() else ()
    known: Version | None = parse_version(version) if version else read[-1] if read else None
    older = tuple(table.spellings(one) for one in reversed(read))
    return _Names(table.spellings(known), older, tuple(sorted(table.spellings())))


class _Arguments:
    """Arguments that have been read so far."""

    def __init__(self, engine: Engine, names: _Names) -> None:
        self.engine, self.names = engine, names
        self.flags: dict[str, str] = {}
        self.model = self.positional = self.stated = ""
        #: Objects that dotted flags join to, by the name of the flag.
        self.objects: dict[str, dict[str, Any]] = {}

    def read(self, left: list[str]) -> None:
        """Read words from left to right."""
        left.reverse()
        while left:
            word = left.pop()
            if word == "--" or not word:
                continue
            if _is_value(word):
                self._take_positional(word)
                continue
            name, equals, value = word.partition("=")
            if name[:2] == "-O" and name[2:].isdigit():
                name, equals, value = "-O", "=", name[2:]
            base, dot, path = ("", "", "") if name in self.names.of_release else name.partition(".")
            spelling = self._spelling(base or name)
            if spelling is None or (dot and not self.engine.underscores):
                self._take_unknown(name, [value] if equals else [], left, bool(equals))
            elif dot:
                self._take_part(spelling.flag, path, value if equals or not left else left.pop())
            elif spelling.flag.alone:
                self._take_switch(spelling, value if equals else self._boolean(left))
            else:
                self._take(spelling.flag, value if equals else self._values(spelling.flag.takes, left))

    def join(self) -> None:
        """Write the objects of dotted flags, which replace an object that was written as a whole."""
        for name, described in self.objects.items():
            self.flags[name] = json.dumps(described)

    def _spelling(self, name: str) -> Spelling | None:
        """Return what a name stands for, or what it is the beginning of; None if no release has it."""
        if self.engine.underscores and name.startswith("--"):
            name = name.replace("_", "-")
        for names in (self.names.of_release, *self.names.older):
            if name in names:
                return names[name]
        if not name.startswith("--") or len(name) < 4:
            return None
        if not self.names.any_begins(name):
            return self._opposite(name)
        ambiguous: list[str] = []
        for names in (self.names.of_release, *self.names.older):
            begun = [known for known in names if known.startswith(name)]
            meant = {(names[known].flag.name, names[known].on): names[known] for known in begun}
            if len(meant) == 1:
                return next(iter(meant.values()))
            ambiguous = ambiguous or begun
        # A release before those that were read, without the longer names that came to one of them.
        for names in self.names.older[-1:] if ambiguous else ():
            begun = sorted((known for known in names if known.startswith(name)), key=len)
            if begun and all(known.startswith(f"{begun[0]}-") for known in begun[1:]):
                return names[begun[0]]
        if ambiguous:
            more = f" and {len(ambiguous) - 6} more" if len(ambiguous) > 6 else ""
            expected = f"one of {', '.join(sorted(ambiguous)[:6])}{more}"
            raise UsageError(
                "the beginning of several flags", where=WHERE, got=repr(name)[:60], expected=expected
            )
        return None

    def _opposite(self, name: str) -> Spelling | None:
        """Return the switch of which ``--disable-x`` is the other side: vLLM 0.33 has such pairs."""
        for start, other in (("--disable-", "--enable-"), ("--enable-", "--disable-")):
            found = self.names.of_release.get(other + name.removeprefix(start))
            if name.startswith(start) and found and found.flag.takes == "pair" and self.engine.underscores:
                return Spelling(found.flag, not found.on)
        return None

    def _take_positional(self, word: str) -> None:
        if "" not in self.engine.models or self.positional:
            raise UsageError("a word that belongs to no flag", where=WHERE, got=repr(word)[:60])
        self._take_model(word)
        self.positional = word

    def _take_model(self, name: str, flag: str = "") -> None:
        """Take a model's name; one by a flag and another one without are too many."""
        other = self.positional if flag else self.stated
        if other and name != other:
            got = f"{other!r}, then {name!r}"[:90]
            hint = "one of them is a word that belongs to no flag"
            raise UsageError("two models", where=WHERE, got=got, hint=hint)
        self.model, self.stated = name, name if flag else self.stated

    def _take(self, flag: Flag, value: str) -> None:
        if flag.name in self.engine.models:
            self._take_model(value, flag.name)
            return
        self.flags.pop(flag.name, None)
        self.objects.pop(flag.name, None)
        self.flags[flag.name] = value

    def _take_switch(self, spelling: Spelling, value: str) -> None:
        stated = _BOOLEANS.get(value.lower()) if value else True
        if stated is None:
            raise UsageError("a flag without a value", where=spelling.flag.name, got=repr(value)[:60])
        self._take(spelling.flag, "" if stated == spelling.on else "false")

    def _take_part(self, flag: Flag, path: str, text: str) -> None:
        """Set one value of a flag's JSON object; ``+`` at the end of the path appends to a list."""
        *steps, last = path.split(".")
        if len(steps) > _MOST_STEPS:
            raise UsageError("too many parts", flag.name, repr(path)[:60], f"at most {_MOST_STEPS}")
        self.flags.setdefault(flag.name, "")
        node = self.objects.setdefault(flag.name, {})
        for step in steps:
            if not isinstance(node.get(step), dict):
                node[step] = {}
            node = node[step]
        if last.endswith("+"):
            before = node.setdefault(last[:-1], [])
            node[last[:-1]] = [
                *(before if isinstance(before, list) else [before]),
                *map(_json, text.split(",")),
            ]
        else:
            node[last] = _json(text)

    def _take_unknown(self, name: str, values: list[str], left: list[str], equals: bool) -> None:
        """Keep a flag that no table has, with the words that can be its values."""
        while not equals and left and _is_value(left[-1]) and (not values or self.model):
            values.append(left.pop())
        if self.engine.underscores and "." not in name:
            name = name.replace("_", "-")
        self.flags.pop(name, None)
        self.flags[name] = " ".join(values)

    def _boolean(self, left: list[str]) -> str:
        """Take the value of a switch, which older releases allowed."""
        return left.pop() if left and left[-1].lower() in ("true", "false") else ""

    def _values(self, takes: str, left: list[str]) -> str:
        values: list[str] = []
        several = takes == "several" and (
            self.model or any(word.partition("=")[0] in self.engine.models for word in left)
        )
        while left and _is_value(left[-1]) and (several or not values):
            values.append(left.pop())
        return " ".join(values)


def _is_value(word: str) -> bool:
    """Return True if argparse takes a word for a value: no dash, a negative number, or a blank in it."""
    return not word.startswith("-") or word == "-" or _NEGATIVE.match(word) is not None or " " in word


def _json(text: str) -> object:
    """Return a part's value: JSON, a number with a suffix, or the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        number = plain_number(text)
        return int(number) if number != text else text
