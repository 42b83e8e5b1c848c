"""Commands of the pages: taken from their blocks and run.

``python tests/site/page_commands.py`` writes their outputs anew. A block of ``sh`` that is followed by a block of
``text`` shows what its last command prints.
"""

import contextlib
import hashlib
import io
import os
import re
import shlex
import tempfile
from itertools import groupby
from pathlib import Path

from kvcache_sim.cli.main import run as kvsim

ROOT = Path(__file__).resolve().parents[2]
#: Pages whose blocks are followed by what they print.
SHOWN = [
    ROOT / page
    for page in """
        README.md docs/start/tutorial.md docs/start/size-a-cluster.md docs/how-to/questions.md
        docs/how-to/capacity.md
    """.split()
]
_SHOWN_BLOCK = re.compile(r"```sh\n(?P<commands>.*?)```(?:\n```text\n(?P<output>.*?)```)?", re.S)
#: Lines that differ from run to run: times.
_TIMED = re.compile(r"^took .*\n", re.M)


def blocks_of(text: str) -> list[str]:
    """Return the blocks of a page that hold commands: fenced ones and indented ones."""
    every = re.findall(r"^```(\w*)\n(.*?)^```", text, re.S | re.M)
    fenced = [block for kind, block in every if kind in ("", "sh")]
    rest = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    indented = re.findall(r"(?:^(?: {4}|\t).*\n(?:[ \t]*\n(?= {4}))*)+", rest, re.M)
    return [*fenced, *indented]


def commands_in(block: str) -> list[str]:
    """Return the lines of a block that are commands of ``kvsim``, each whole and without its remark."""
    joined = re.sub(r"\s*\\\n\s*", " ", block)
    lines = [re.sub(r"\s+#\s.*", "", line.strip()) for line in joined.splitlines()]
    parts = [part.strip() for line in lines for part in re.split(r" ; ", line)]
    return [part for part in parts if part.startswith("kvsim ")]


def run(command: str) -> tuple[int, str]:
    """Run one command in the current folder as a shell would; returns its exit code and what it printed.

    Known of a shell: ``> FILE``, ``| tee FILE``, ``| head -N``, ``| tail -N``, ``| grep -E PATTERN`` and, first,
    ``| sha256sum``.
    """
    words = shlex.split(command)[1:]
    target = words.pop() if words[-2:-1] == [">"] else None
    argv, *filters = [list(part) for is_pipe, part in groupby(words, "|".__eq__) if not is_pipe]
    if target:
        argv.pop()
    taken = io.BytesIO()
    out = io.TextIOWrapper(taken, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out):
        code = kvsim(argv)
    printed = _TIMED.sub("", taken.getvalue().decode())
    for name, *arguments in filters:
        argument = arguments[-1] if arguments else ""
        lines = printed.splitlines(keepends=True)
        match name:
            case "tee":
                target = argument
            case "head":
                lines = lines[: -int(argument)]
            case "tail":
                lines = lines[int(argument) :]
            case "sha256sum":
                lines = [f"{hashlib.sha256(taken.getvalue()).hexdigest()}  -\n"]
            case "grep":
                lines = [line for line in lines if re.search(argument, line)]
        printed = "".join(lines)
    if target:
        Path(target).write_text(printed)
    return code, printed


def shown(text: str) -> list[tuple[list[str], str | None]]:
    """Return the commands of each ``sh`` block of a page, and the output the page shows behind it."""
    return [(commands_in(m["commands"]), m["output"]) for m in _SHOWN_BLOCK.finditer(text)]


def written_anew(text: str) -> str:
    """Return a page with the outputs that its commands give now; runs in the current folder."""

    def filled(match: re.Match[str]) -> str:
        printed = ""
        for command in commands_in(match["commands"]):
            code, printed = run(command)
            assert code == 0, command
        if match["output"] is None:
            return match[0]
        return f"```sh\n{match['commands']}```\n```text\n{printed.strip(chr(10))}\n```"

    return _SHOWN_BLOCK.sub(filled, text)


if __name__ == "__main__":
    for page in SHOWN:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            page.write_text(written_anew(page.read_text()))
