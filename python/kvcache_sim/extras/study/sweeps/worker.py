"""A worker process: runs one cell at a time and cannot outlive the process that started it.

Started as ``python -m kvcache_sim.extras.study.sweeps.worker READ_FD WRITE_FD PARENT_PID``.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kvcache_sim.base.errors import KvsimError, panics_as_errors
from kvcache_sim.extras.study.sweeps.cell import Cell, Study, canonical_json

_HEADER = struct.Struct(">I")


def send(handle: int, message: object) -> None:
    """Write one message whole; raises ``BrokenPipeError`` when the reader is gone."""
    body = json.dumps(message).encode()
    view = memoryview(_HEADER.pack(len(body)) + body)
    while view:
        view = view[os.write(handle, view) :]


def receive(handle: int) -> object | None:
    """Read one message, waiting for it; None when the writer is gone, even in the middle of a message."""
    header = _read_exactly(handle, _HEADER.size)
    if header is None:
        return None
    body = _read_exactly(handle, _HEADER.unpack(header)[0])
    return None if body is None else json.loads(body)


def _read_exactly(handle: int, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        piece = os.read(handle, count - len(parts))
        if not piece:
            return None
        parts += piece
    return bytes(parts)


CellFunction = Callable[[Study, Cell], Mapping[str, object]]

_PR_SET_PDEATHSIG = 1


def load_cell_function(name: str) -> CellFunction:
    """Return the function named ``module:function``."""
    module, _, function = name.partition(":")
    loaded: CellFunction = getattr(importlib.import_module(module), function)
    return loaded


def die_with_parent(parent_pid: int) -> None:
    """Ask Linux to kill this process when its parent dies; elsewhere the pipe's end has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:  # it died before the request
            os._exit(1)


def limit_memory(count_bytes: int) -> None:
    """Let allocations beyond this address space fail, so that the cell ends and not the machine."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    upper_bound = count_bytes if hard == resource.RLIM_INFINITY else min(count_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (upper_bound, hard))


def run_cell(function: CellFunction, study: Study, cell: Cell) -> dict[str, object]:
    """Run one cell and return its status, summary and error; an exception becomes one line."""
    try:
        with panics_as_errors():
            summary = dict(function(study, cell))
        canonical_json(summary)  # a summary that cannot be stored is a failure of the cell, not of the sweep
        return {"status": "ok", "summary": summary, "error": ""}
    except MemoryError:
        return {"status": "oom", "summary": {}, "error": "out of memory: the cell's limit was reached"}
    except KvsimError as error:
        return {"status": "failed", "summary": {}, "error": str(error)}
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        return {"status": "failed", "summary": {}, "error": f"{type(error).__name__}: {text}"}


def _feed(handle: int, tasks: queue.SimpleQueue[Any]) -> None:
    while (message := receive(handle)) is not None:
        tasks.put(message)
    os._exit(0)  # the supervisor is gone or has closed the pipe


def main(arguments: list[str]) -> None:
    """Serve cells until the pipe ends. The first message is the study with the memory limit."""
    reader, writer, parent = (int(text) for text in arguments)
    die_with_parent(parent)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_feed, args=(reader, tasks), daemon=True).start()
    setup = tasks.get()
    study = Study(**setup["study"])
    function = load_cell_function(study.cell_function)
    if setup["memory_bytes"] is not None:
        limit_memory(setup["memory_bytes"])
    send(writer, {"ready": os.getpid()})
    while True:
        answer = run_cell(function, study, Cell(**tasks.get()))
        send(writer, answer)


if __name__ == "__main__":
    main(sys.argv[1:])
