"""Run commands one after the other, each in a fork of this process, with a standard output that takes nothing.

``python forked_commands.py`` reads JSON, [[kind, word, …], …], and prints
the exit code and standard error of each as JSON.
A fork ends as any interpreter does, and so writes once more what its buffers hold.
"""

import json
import os
import sys
import tempfile

from kvcache_sim.__main__ import main


def standard_output(kind: str) -> int:
    """Return a descriptor: ``full`` and ``both`` take no byte, ``closed`` has no reader, others take all."""
    if kind == "closed":
        reader, writer = os.pipe()
        os.close(reader)
        return writer
    return os.open("/dev/full" if kind in ("full", "both") else os.devnull, os.O_WRONLY)


def code_of(kind: str, words: list[str], errors: int) -> int:
    """Run a command in a fork and return its exit code."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.dup2(standard_output(kind), 1)
    os.dup2(standard_output("full") if kind in ("errors", "both") else errors, 2)
    sys.argv = ["kvsim", *words]
    main()
    raise AssertionError("main exits")


def each() -> None:
    """Run the commands of standard input."""
    answers = []
    for kind, *words in json.load(sys.stdin):
        with tempfile.TemporaryFile() as errors:
            code = code_of(kind, words, errors.fileno())
            errors.seek(0)
            answers.append([code, errors.read().decode()])
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    each()
