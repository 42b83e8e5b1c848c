"""The objects of a JSON array, or of JSON lines, one at a time."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kvcache_sim._core import TraceProblem

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

_CHUNK = 1 << 20
#: A longer element is refused: the limit bounds memory on endless input.
LONGEST_ELEMENT = 1 << 25


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
    text, at, line, want, ended = "", 0, 1, _CHUNK, False
    while True:
        while at < len(text) and text[at] in " \t\r\n,[]\ufeff":
            line += text[at] == "\n"
            at += 1
        try:
            if at < len(text):
                value, end = decoder.raw_decode(text, at)
                if end < len(text) or ended:
                    yield line, value
                    line += text.count("\n", at, end)
                    at, want = end, _CHUNK
                    continue
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
                what = "unterminated JSON (file may be truncated)" if cut else "not JSON"
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
