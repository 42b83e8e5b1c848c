"""Mutated texts for each kind of log and each format of traces; libFuzzer's options follow. ``make fuzz`` runs it.

``KVSIM_FUZZ`` is ``log-KIND`` or ``trace-FORMAT``; ``--targets`` lists them. A text becomes a trace that is read
again, or is refused in one line; what refuses a log where a trace should be is tried too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

if sys.argv[1:] == ["--targets"]:
    from kvcache_sim.workload.imports.write import KINDS
    from kvcache_sim.workload.readers.format import SIGNS

    print(*(f"log-{name}" for name in KINDS), *(f"trace-{name}" for name in SIGNS))
    sys.exit()

import atheris

with atheris.instrument_imports(include=["kvcache_sim.workload"]):
    from kvcache_sim.base.errors import KvsimError
    from kvcache_sim.workload.imports.kind import Reading
    from kvcache_sim.workload.imports.naming import Naming, Notes
    from kvcache_sim.workload.imports.recognize import refuse_log
    from kvcache_sim.workload.imports.write import import_logs
    from kvcache_sim.workload.readers import ReadSettings, read_trace

GROUP, _, NAME = os.environ["KVSIM_FUZZ"].partition("-")
FOLDER = Path(tempfile.mkdtemp(prefix="kvsim-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
TEXT, TRACE = FOLDER / "text", FOLDER / "trace"


def imported(skips: bool) -> None:
    """Import the text; its trace has rows that are read again, as many."""
    notes = Notes()
    log = import_logs([str(TEXT)], NAME, Reading(Naming(16, b"-"), notes, skips, 7 if skips else None))
    assert log is not None
    TRACE.write_text("".join(log.lines()))
    again = read_trace(TRACE, settings=ReadSettings(block_size=16, format="mooncake", time_order="sort"))
    assert len(again) == len(log)
    assert all("\n" not in line for line in notes.lines("x"))


def one_input(data: bytes) -> None:
    TEXT.write_bytes(data)
    if GROUP == "log":
        runs = [lambda: imported(False), lambda: imported(True)]
    else:
        settings = ReadSettings(format=NAME), ReadSettings(format=NAME, on_bad_row="skip", answer_tokens=7)
        runs = [lambda one=one: read_trace(TEXT, settings=one) for one in settings]
    for run in [lambda: refuse_log(data[: 1 << 16], str(TEXT)), *runs]:
        try:
            run()
        except KvsimError as error:
            if "\n" in str(error):
                raise AssertionError(f"not one line: {error}") from error


atheris.Setup(sys.argv, one_input)
atheris.Fuzz()
