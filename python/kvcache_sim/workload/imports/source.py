"""The lines of a log, plain or compressed, with their numbers, JSON values, and dates as ns."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kvcache_sim._core import TraceProblem
from kvcache_sim.base.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_CHUNK = 1 << 20
#: A longer line is refused: the limit bounds memory on endless input.
LONGEST_LINE = 1 << 26


def lines_of(source: TraceSource) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of each non-blank line; TraceProblem for invalid UTF-8 or an endless line."""
    utf8, rest, number = codecs.getincrementaldecoder("utf-8")(), "", 0
    while True:
        data = source.read(_CHUNK)
        try:
            rest += utf8.decode(data, final=not data)
        except UnicodeDecodeError as error:
            line = number + 1 + error.object.count(b"\n", 0, error.start)
            raise TraceProblem(line, 0, "encoding", "not UTF-8", error.reason, "", "") from None
        *whole, rest = rest.split("\n")
        if not data and rest:
            whole, rest = [*whole, rest], ""
        for text in whole:
            number += 1
            if text.strip():
                yield number, text
        if len(rest) > LONGEST_LINE:
            expected = f"at most {LONGEST_LINE} characters"
            raise TraceProblem(number + 1, 0, "line", "a line too long", rest[:40], expected, "")
        if not data:
            return


def json_line(number: int, text: str) -> Any:
    """Return the value of a line of JSON; TraceProblem if it is invalid."""
    try:
        return json.loads(text)
    except RecursionError:
        raise TraceProblem(number, 0, "json", "JSON nested too deep", text[:40], "", "") from None
    except ValueError as error:
        at = getattr(error, "pos", 0)
        raise TraceProblem(number, at + 1, "json", "not JSON", text[at : at + 40], "", "") from None


def problem(number: int, what: str, got: Any = "", expected: str = "") -> TraceProblem:
    """Return the error of a line of a log."""
    return TraceProblem(number, 0, "log", what, str(got)[:60], expected, "")


def member(row: Any, *names: str) -> Any:
    """Return the first member of an object that exists and is not null; None if there is none."""
    if isinstance(row, dict):
        for name in names:
            if row.get(name) is not None:
                return row[name]
    return None


def count_of(number: int, row: Any, *names: str) -> int | None:
    """Return the first token count under one of the names; None without; TraceProblem if it is invalid."""
    value = member(row, *names)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < 2**31
        or value != int(value)
    ):
        raise problem(number, f"{names[0]} is no count", repr(value), "0 to 2147483647 tokens")
    return int(value)


def measured_of(number: int, row: Any, name: str) -> float | None:
    """Return what was measured under a name; None without; TraceProblem for what is no finite number ≥ 0."""
    value = member(row, name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise problem(number, f"{name} is no measured number", repr(value), "0 to 9007199254740991")
    return float(value)


def tokens_of(number: int, value: Any) -> list[int]:
    """Return a list of token ids; TraceProblem if it is invalid."""
    fits = isinstance(value, list) and all(type(t) is int and 0 <= t < 2**32 for t in value)
    if not fits:
        raise problem(number, "not a list of token ids", value, "whole numbers below 2^32")
    return list(value)


#: Smaller numbers are seconds since 1970; then ms, us and ns: a date from 1973 to 5138 in each unit.
_SECONDS, _MS, _US = 1e11, 1e14, 1e17
_NS_PER_US = 1000


def time_ns(value: Any) -> int | None:
    """Return a date since 1970 in ns: a number of s, ms, us or ns by its size, or ISO 8601; None otherwise.

    A text without a time zone is interpreted as UTC; fractions beyond microseconds are cut.
    """
    if isinstance(value, str):
        try:
            date = datetime.fromisoformat(value.strip())
        except ValueError:
            return _number(value)
        span = (date if date.tzinfo else date.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return (span.days * 86_400 + span.seconds) * NS_PER_S + span.microseconds * _NS_PER_US
    return None if isinstance(value, bool) else _scaled(value)


def _number(text: str) -> int | None:
    try:
        return _scaled(float(text))
    except ValueError:
        return None


def _scaled(value: Any) -> int | None:
    if not isinstance(value, int | float) or not 0 <= value < 1e19:
        return None
    if value < _SECONDS:
        return round(value * 1_000_000) * _NS_PER_US
    if value < _MS:
        return round(value * 1000) * _NS_PER_US
    return int(value) * _NS_PER_US if value < _US else int(value)


def log_clock_ns(text: str, before_ns: int) -> int:
    """Return the time of ``MM-DD HH:MM:SS`` without a year: the first such date after another time.

    Raises ValueError for an invalid date.
    """
    year = 1970 + before_ns // (366 * 86_400 * NS_PER_S)
    for candidate in range(max(1972, year - 1), year + 10):
        try:
            date = datetime.strptime(f"{candidate}-{text}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        except ValueError:
            if not text.startswith("02-29"):
                raise
            continue
        found = int(date.timestamp()) * NS_PER_S
        if found > before_ns - 86_400 * NS_PER_S:
            return found
    raise ValueError(text)


def ms_of(ns: int) -> float:
    """Return ns as ms, to the microsecond."""
    return round(ns / NS_PER_MS, 3)
