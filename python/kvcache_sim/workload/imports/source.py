"""The lines of a log, plain or compressed, with their numbers, JSON values, and dates as ns."""

from __future__ import annotations

import ast
import codecs
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from kvcache_sim._core import TraceProblem
from kvcache_sim.base.units import NS_PER_MS, NS_PER_S
from kvcache_sim.workload.prompts.body import member

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
        rest = rest if number else rest.removeprefix("\ufeff")
        *whole, rest = rest.split("\n")
        if not data and rest:
            whole, rest = [*whole, rest], ""
        for text in whole:
            number += 1
            if text.strip():
                yield number, _unwrapped(text) if text.startswith('{"log":') else text
        if len(rest) > LONGEST_LINE:
            expected = f"at most {LONGEST_LINE} characters"
            raise TraceProblem(number + 1, 0, "line", "a line too long", rest[:40], expected, "")
        if not data:
            return


def _unwrapped(text: str) -> str:
    """Return the line within a line of Docker's own log (``{"log": …, "stream": …, "time": …}``)."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_line = isinstance(row.get("log"), str) and "stream" in row
    return str(row["log"]) if is_line else text


def json_line(number: int, text: str) -> Any:
    """Return the value of a line of JSON; TraceProblem if it is invalid."""
    with suppress(msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return msgspec.json.decode(text)
    try:  # takes NaN and halves of surrogate pairs, and locates what is wrong
        return json.loads(text)
    except RecursionError:
        raise TraceProblem(number, 0, "json", "JSON nested too deep", text[:40], "", "") from None
    except ValueError as error:
        at = getattr(error, "pos", 0)
        raise TraceProblem(number, at + 1, "json", "not JSON", text[at : at + 40], "", "") from None


def text_literal(number: int, text: str) -> str | None:
    """Return a text as Python writes it, or its None; TraceProblem if it is neither."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        found = 0
    if not isinstance(found, str | None):
        raise problem(number, "not a text as Python writes it", text)
    return found


def problem(number: int, what: str, got: Any = "", expected: str = "") -> TraceProblem:
    """Return the error of a line of a log."""
    return TraceProblem(number, 0, "log", what, str(got)[:60], expected, "")


def list_of(value: Any) -> list[Any]:
    """Return a list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def objects_of(number: int, row: Any, *names: str) -> list[dict[str, Any]]:
    """Return a member that is a list of objects; TraceProblem if it is none."""
    found = member(row, *names)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise problem(number, f"{names[0]} is no list of objects", found)
    return found


def amount_of(value: Any) -> float | None:
    """Return a number of 0 or more, such as a time; None for anything else, NaN and numbers past 1e15 too."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return float(value) if usable else None


def tokens_of(number: int, value: Any) -> list[int]:
    """Return a list of token ids; TraceProblem if it is invalid."""
    fits = isinstance(value, list) and all(type(t) is int and 0 <= t < 2**32 for t in value)
    if not fits:
        raise problem(number, "not a list of token ids", value, "whole numbers below 2^32")
    return list(value)


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
