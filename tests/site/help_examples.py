"""Examples of every verb's help, by verb."""

import contextlib
import io
import re
from collections.abc import Iterator

from kvcache_sim.cli.main import run
from support.product.scenarios import commands


def examples() -> list[tuple[str, str]]:
    """Return (verb, example) of the overview and of every verb and subcommand, each a line of a shell."""
    with contextlib.redirect_stdout(io.StringIO()) as overview:
        run(["--help"])
    pages: Iterator[tuple[str, str]] = ((name, command.help or "") for name, command in commands())
    every = [("kvsim", overview.getvalue()), *pages]
    return [(name, line) for name, text in every for line in lines_of(text)]


def lines_of(text: str) -> list[str]:
    """Return the lines of a help text below ``Example``, each whole."""
    joined = re.sub(r"\\\n\s*", "", text)
    below = re.search(r"^ *Examples?\b[^\n]*:\n(?P<lines>(?:.+\n?)*)", joined, re.M)
    lines = below["lines"].splitlines() if below else []
    return [line.strip() for line in lines if line.strip()]
