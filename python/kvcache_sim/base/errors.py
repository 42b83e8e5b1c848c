"""Errors for people: one line each, and the exit code of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

EXIT_OK = 0
EXIT_INTERNAL = 1
EXIT_USAGE = 2
EXIT_TRACE = 3
EXIT_THRESHOLD = 4
EXIT_SWEEP_FAILED = 5
EXIT_OUTPUT_EXISTS = 6
EXIT_IO = 7
EXIT_SIGHUP = 129
EXIT_SIGINT = 130
EXIT_SIGTERM = 143

#: Every exit code with its meaning, as ``kvsim help exit-codes`` prints them.
EXIT_CODES: dict[int, str] = {
    EXIT_OK: "ok",
    EXIT_INTERNAL: "internal error or a violated invariant",
    EXIT_USAGE: "usage, scenario or missing file",
    EXIT_TRACE: "trace data",
    EXIT_THRESHOLD: "a --fail-if threshold was breached, or no candidate of kvsim capacity holds the rate",
    EXIT_SWEEP_FAILED: "a sweep finished with failed cells",
    EXIT_OUTPUT_EXISTS: "the output exists or is locked",
    EXIT_IO: "input/output: unreadable, permission, disk full",
    EXIT_SIGHUP: "hung up (SIGHUP)",
    EXIT_SIGINT: "interrupted (SIGINT)",
    EXIT_SIGTERM: "terminated (SIGTERM)",
}


@dataclass
class KvsimError(Exception):
    """A refusal in one line: ``where: what; got; expected; hint``, without its empty parts.

    Attributes:
        what: The reason.
        where: ``file``, ``file:line`` or ``file:line:col``, or the option or key in question.
        got: The refused value.
        expected: The accepted values.
        hint: A remedy.
        exit_code: Exit code of ``kvsim``.
    """

    what: str
    where: str = ""
    got: str = ""
    expected: str = ""
    hint: str = ""

    exit_code = EXIT_INTERNAL

    def __str__(self) -> str:
        """Return the error as one line, control characters escaped."""
        parts = [f"{self.where}: {self.what}" if self.where else self.what]
        parts += [f"got {self.got}"] if self.got else []
        parts += [f"expected {self.expected}"] if self.expected else []
        parts += [self.hint] if self.hint else []
        line = "; ".join(parts)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


class UsageError(KvsimError):
    """A command line, scenario or file name that cannot be used (exit 2).

    Attributes:
        exit_code: Exit code of ``kvsim``, 2. The others are those of ``KvsimError``.
    """

    exit_code = EXIT_USAGE


class StoreError(UsageError):
    """An invalid call of a block store, such as a second release; the store is unchanged (exit 2)."""


class TraceError(KvsimError):
    """A trace whose data cannot be trusted (exit 3).

    Attributes:
        exit_code: Exit code of ``kvsim``, 3. The others are those of ``KvsimError``.
    """

    exit_code = EXIT_TRACE


class OutputExistsError(KvsimError):
    """An output that exists or is in use (exit 6).

    Attributes:
        exit_code: Exit code of ``kvsim``, 6. The others are those of ``KvsimError``.
    """

    exit_code = EXIT_OUTPUT_EXISTS


class InputOutputError(KvsimError):
    """A file that cannot be read or written (exit 7).

    Attributes:
        exit_code: Exit code of ``kvsim``, 7. The others are those of ``KvsimError``.
    """

    exit_code = EXIT_IO


class InvariantError(KvsimError):
    """A violated invariant of the simulator itself (exit 1)."""

    exit_code = EXIT_INTERNAL


def refusal_of(error: BaseException) -> KvsimError | None:
    """Return the line of an error of the system, such as a full disk or a number too large; None: a bug."""
    match error:
        case KvsimError():
            return error
        case MemoryError():
            return InputOutputError("out of memory")
        case OSError():
            return InputOutputError(str(error.strerror or error), os.fsdecode(error.filename or ""))
        case UnicodeEncodeError():  # a directory above a file may be such a name too
            return UsageError("a name is not UTF-8", got=ascii(error.object)[:80])
        case OverflowError():
            return UsageError(f"a number beyond 64 bits: {error}")
        case ValueError() if "null" in str(error):
            return UsageError("a name with a null character")
        case RecursionError():
            return UsageError(f"a file nested too deeply: {error}")
    return None


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of the core, which is no ``Exception``, into an InvariantError of one line."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        from kvcache_sim import _core

        raise InvariantError(f"the core: {' '.join(_core.last_panic().split())}") from error
