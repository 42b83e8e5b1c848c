"""A worker process of a sweep: its last words, its end, and what is ready to be received."""

import os
import subprocess
import tempfile
from types import SimpleNamespace

import pytest
from kvcache_sim.extras.study.sweeps.processes import LocalProcess, LocalProcesses


def process_of(code, log=b""):
    """Return a process that ended with a code, or has not (None), and printed a log."""
    own = LocalProcess.__new__(LocalProcess)
    own.killed = []

    def wait(timeout=None):
        if code is None and timeout is not None:
            raise subprocess.TimeoutExpired("worker", timeout)

    own._process = SimpleNamespace(
        poll=lambda: code, wait=wait, kill=lambda: own.killed.append(True), returncode=code
    )
    own._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by the process)
    own._log.write(log)
    own.reader, own._writer = os.pipe()
    return own


@pytest.mark.parametrize(
    ("code", "log", "words"),
    [(0, b"", "exit code 0"), (3, b"one\n two \n\n", "exit code 3: two"), (-9, b"", "SIGKILL"), (-15, b"x", "SIGTERM: x"), (None, b"", "still there"), (1, b"\xff", "exit code 1: \ufffd"),
     (1, b"a\n" + b"y" * 301, "exit code 1: " + "y" * 300), (1, b"lost\n" * 10 + b"z" * 1990 + b"\nlast", "exit code 1: last"), (1, b"first " + b"w" * 3000, "exit code 1: " + "w" * 300)],
)  # fmt: skip
def test_the_last_words_of_a_process_are_its_end_and_its_last_line(code, log, words):
    own = process_of(code, log)
    assert own.last_words() == words
    own.close()
    assert bool(own.killed) is (code is None)
    assert own._log.closed
    for descriptor in (own.reader, own._writer):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.close(descriptor)


def test_what_has_a_message_or_has_ended_is_ready():
    first, second, third = (process_of(0) for _ in range(3))
    answers = [os.pipe() for _ in range(3)]
    for own, (reader, _) in zip((first, second, third), answers, strict=True):
        os.close(own.reader)
        own.reader = reader
    reading, asking = os.pipe()
    acknowledged = []
    stop = SimpleNamespace(
        fileno=lambda: reading, acknowledge=lambda: acknowledged.append(os.read(reading, 1))
    )
    wait = LocalProcesses().wait
    assert [*wait([first, second, third], stop, 0.0)] == []
    os.write(answers[1][1], b"x")
    assert [*wait([first, second, third], stop, 5.0)] == [second]
    os.close(answers[2][1])
    assert {*map(id, wait([first, second, third], None, 5.0))} == {id(second), id(third)}
    assert not acknowledged
    os.write(asking, b"s")
    assert [*wait([first], stop, 5.0)] == []
    assert acknowledged == [b"s"]
