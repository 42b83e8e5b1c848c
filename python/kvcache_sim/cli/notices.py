"""Warnings and notes on stderr, in lines that fit the terminal."""

from __future__ import annotations

import sys

#: Columns of a line where stderr is no terminal.
_COLUMNS = 80


def warn(text: object) -> None:
    """Print a warning on stderr; further lines of it are indented."""
    _print(f"warning: {text}")


def remark(text: object) -> None:
    """Print a note on stderr; further lines of it are indented."""
    _print(f"note: {text}")


def _print(text: str) -> None:
    from textwrap import wrap

    columns = _COLUMNS
    if sys.stderr.isatty():
        from shutil import get_terminal_size  # and with it three compressors

        columns = get_terminal_size().columns
    for line in wrap(
        text, max(40, columns), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ):
        print(line, file=sys.stderr)
