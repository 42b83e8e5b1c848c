"""The objects of a JSON array, or of JSON lines, one at a time."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcache_sim._core import TraceProblem
from kvcache_sim.workload.prompts.body import BodyError

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_CHUNK = 1 << 20
#: A longer element is refused: the limit bounds memory on endless input.
LONGEST_ELEMENT = 1 << 25
_CUT = "unterminated JSON (file may be truncated)"


def objects(
    source: TraceSource, longest: int = LONGEST_ELEMENT, strict: bool = True
) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) of each element; raises ``TraceProblem`` for invalid JSON.

    Memory: the largest element and one chunk. An element longer than a chunk is scanned again as it grows,
    doubling, so the time stays linear; one longer than ``longest`` characters is refused. NaN and Infinity
    are taken as Python writes them unless ``strict``.
    """
    decoder = json.JSONDecoder(parse_constant=_no_constant if strict else None)
    utf8 = codecs.getincrementaldecoder("utf-8")()
    text, at, line, want, ended, depth = "", 0, 1, _CHUNK, False, 0
    while True:
        while at < len(text) and text[at] in " \t\r\n,[]\ufeff":
            line += text[at] == "\n"
            depth += (text[at] == "[") - (text[at] == "]")
            at += 1
        try:
            if at < len(text):
                value, end = decoder.raw_decode(text, at)
                if end < len(text) or ended:
                    yield line, value
                    line += text.count("\n", at, end)
                    at, want = end, _CHUNK
                    continue
            elif ended and depth > 0:
                raise TraceProblem(line, 0, "json", _CUT, "", "", "")
            elif ended:
                return
        except RecursionError:
            raise TraceProblem(line, 0, "json", "JSON nested too deep", text[at : at + 40], "", "") from None
        except ValueError as error:
            if ended:
                where = getattr(error, "pos", at)
                col = where - text.rfind("\n", 0, where)
                line += text.count("\n", at, where)
                cut = where >= len(text.rstrip()) or str(error).startswith("Unterminated")
                what = _CUT if cut else "not JSON"
                raise TraceProblem(line, col, "json", what, text[where : where + 40], "", "") from None
        if len(text) - at > longest:
            expected = f"at most {longest} characters"
            raise TraceProblem(line, 0, "json", "an element too long", text[at : at + 40], expected, "")
        try:
            data = source.read(want)
            text, at, want = text[at:] + utf8.decode(data, final=not data), 0, want * 2
        except UnicodeDecodeError as error:
            raise TraceProblem(line, 0, "encoding", "not UTF-8", error.reason, "", "") from None
        ended = not data


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


class BadRows(NamedTuple):
    """Bad rows that were skipped, the errors of the first ones, and the last element's line."""

    rows: int
    first: list[tuple[int, int, str, str, str, str, str]]
    last_line: int


def each_object(source: TraceSource, skips: bool, take: Callable[[int, Any], None]) -> BadRows:
    """Call ``take`` for each element; a bad one (TraceProblem, BodyError) is refused, or skipped."""
    first: list[tuple[int, int, str, str, str, str, str]] = []
    count = line = 0
    for line, value in objects(source):
        try:
            take(line, value)
        except (TraceProblem, BodyError) as bad:
            if isinstance(bad, BodyError):
                bad = TraceProblem(line, 0, "value", bad.what, bad.got[:40], bad.expected, "")
            if not skips:
                raise bad from None
            count += 1
            first += [bad.args] if len(first) < 20 else []
    return BadRows(count, first, line)
