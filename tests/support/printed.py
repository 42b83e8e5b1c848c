"""The output of commands on a terminal of so many columns, without all that differs from machine to machine."""

import io
import os
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from kvcache_sim import __version__
from kvcache_sim.cli.main import run


class Terminal(io.StringIO):
    """A text that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


#: What hangs on the machine, the clock or the release, and what stands for it.
UNSTABLE = {r"^took .*\n": "", r"\b[0-9a-f]{24,64}\b": "<digest>", re.escape(__version__): "<version>"}


def normalized(text: str, folder: Path) -> str:
    """Return a text without digests, versions, CPU seconds, memory and the folder that it was made in."""
    for pattern, instead in {re.escape(f"{folder}/"): "", re.escape(str(folder)): ".", **UNSTABLE}.items():
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines())


def printed(folder: Path, *words: str, columns: int = 80, code: int = 0) -> str:
    """Return what a command prints to a terminal, run in a folder; it must end with an exit code.

    Notices follow on the lines behind ``stderr:``.
    """
    out, err = Terminal(), io.StringIO()
    before = Path.cwd()
    with patch.dict(os.environ, COLUMNS=str(columns)), redirect_stdout(out), redirect_stderr(err):
        os.chdir(folder)
        try:
            found = run(list(words))
        finally:
            os.chdir(before)
    assert found == code, err.getvalue()
    said = out.getvalue() + (f"stderr:\n{err.getvalue()}" if err.getvalue() else "")
    return normalized(said, folder)


def overlong(text: str, columns: int = 80) -> list[str]:
    """Return the lines of a text that do not fit the columns."""
    return [line for line in text.splitlines() if len(line) > columns]
