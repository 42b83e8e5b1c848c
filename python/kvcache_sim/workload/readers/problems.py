"""Errors of a trace with their location."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator

from kvcache_sim._core import TraceProblem, TraceSource
from kvcache_sim.base.errors import InputOutputError, TraceError, UsageError


@contextlib.contextmanager
def located_errors(where: str) -> Iterator[None]:
    """Raise the core's errors on a trace as errors with a location."""
    try:
        yield
    except TraceProblem as problem:
        raise trace_error(where, problem.args) from None
    except OSError as error:
        raise unreadable(where, error) from None


def opened(path: str, what: str) -> TraceSource:
    """Return a source of bytes; UsageError if there is no such file, with ``what`` as the expected kind."""
    try:
        return TraceSource(path)
    except FileNotFoundError:
        raise UsageError(f"{what} not found", where=path) from None
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(where: str, error: OSError) -> InputOutputError:
    """Return the error of a trace that the system cannot read."""
    return InputOutputError(
        "cannot be read", where=where, got=os.strerror(error.errno) if error.errno else str(error)
    )


def trace_error(where: str, parts: tuple[object, ...]) -> TraceError:
    """Return the error of a reported problem; ``FILE`` in its hint becomes ``where``."""
    line, col, _kind, what, got, expected, hint = parts
    location = where + (f":{line}" if line else "") + (f":{col}" if line and col else "")
    return TraceError(
        str(what),
        where=location,
        got=str(got),
        expected=str(expected),
        hint=str(hint).replace("FILE", shlex.quote(where)),
    )
