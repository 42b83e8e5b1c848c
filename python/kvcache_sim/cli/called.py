"""``kv.command``: a line of ``kvsim`` from Python, with what it prints as text."""

from __future__ import annotations

import io
import os
import shlex
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from kvcache_sim.api.calls import public
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import dispatch


class Printed(NamedTuple):
    """The output of a command, and its exit code; ``print`` shows the text.

    Attributes:
        text: Standard output: a table, or JSON with ``--format json``.
        remarks: Standard error: warnings, and the files that were written.
        exit_code: 0, or 4 where a condition or rate does not hold, 5 for failed cells.
    """

    text: str
    remarks: str
    exit_code: int

    def __str__(self) -> str:
        """Return the standard output."""
        return self.text

    def __repr__(self) -> str:
        return f"<Printed exit {self.exit_code}, {self.text.count(chr(10))} lines>"


@public
def command(line: str | os.PathLike[str], *words: str | int | float | os.PathLike[str]) -> Printed:
    """Run a command of ``kvsim`` in this process: any verb and option, in the words of the command line.

    Args:
        line: A line as typed, ``"trace stats t.jsonl"``; with ``words`` its first word.
        words: The words after the first, each as it is: ``"compare", a, b, "--format", "json"``.

    Returns:
        The text that it prints, and its exit code.

    Raises:
        UsageError: The verb, an option or a value is wrong; the message is the line that the command prints.
        TraceError: A trace has data that cannot be trusted.
        OutputExistsError: An output exists.
        InputOutputError: A file cannot be read or written.
    """
    given = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in (line, *words)]
    try:
        argv = given if words else shlex.split(given[0])
    except ValueError as error:
        raise UsageError(str(error).lower(), where="line", got=repr(given[0])[:80]) from None
    text, remarks = io.StringIO(), io.StringIO()
    with redirect_stdout(text), redirect_stderr(remarks):
        code = dispatch(argv[1:] if argv[:1] == ["kvsim"] else argv)
    return Printed(text.getvalue(), remarks.getvalue(), code)
