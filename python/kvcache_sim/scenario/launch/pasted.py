"""The text of ``--from``: the argument itself, a file, or the standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.regular_files import open_regular
from kvcache_sim.scenario.launch.line import MOST_CHARACTERS

#: Four bytes a character at most.
_MOST_BYTES = 4 * MOST_CHARACTERS


def read_pasted(source: str) -> str:
    """Return the text that ``--from`` names: of a file if there is one of this name; ``-`` is standard input.

    Raises UsageError for a file that is no text in UTF-8.
    """
    if source == "-":
        return _decoded(sys.stdin.buffer.read(_MOST_BYTES + 1), "stdin")
    if "\n" in source or len(source) > 4096:
        return source
    try:
        with open_regular(Path(source)) as file:
            return _decoded(file.read(_MOST_BYTES + 1), source)
    except (OSError, ValueError):
        return source


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError("not UTF-8 text", where, hint="save the file as UTF-8") from None
