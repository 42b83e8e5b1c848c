"""Count the calls from ``--set`` to the core's settings, and the files that contain them.

    python benches/setting_path.py [--calls]

Counts the functions of the package that are entered while ``--set tiers.cpu.capacity=512GiB`` on a bare trace
is read, checked, filled in and lowered, in a fresh process. Comprehensions and resumed generators count,
bodies of modules and classes do not.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import kvcache_sim
from kvcache_sim.scenario.load import load_scenario

PACKAGE = str(Path(kvcache_sim.__file__).parent)
#: Flag of code with fast local variables: functions, not bodies of modules and classes.
OPTIMIZED = 0x1
ROW = '{"timestamp": 0, "input_length": 100, "output_length": 5, "hash_ids": [1]}\n'


def calls_of_a_setting() -> list[tuple[str, str]]:
    """Return (file, function) of each call, in order."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_flags & OPTIMIZED:
            calls.append((code.co_filename[len(PACKAGE) + 1 :], code.co_qualname))

    with TemporaryDirectory() as directory:
        trace = Path(directory, "trace.jsonl")
        trace.write_text(ROW)
        sys.setprofile(note)
        try:
            load_scenario(None, ["tiers.cpu.capacity=512GiB"], trace)
        finally:
            sys.setprofile(None)
    return calls


def main() -> None:
    """Print the counts, and with ``--calls`` the calls."""
    calls = calls_of_a_setting()
    files = [file for file, _ in calls]
    changes = sum(a != b for a, b in pairwise(files))
    print(f"{len(calls)} calls in {len(set(files))} files, {changes} changes of file")
    if "--calls" in sys.argv:
        for (file, function), n in Counter(calls).most_common():
            print(f"{n:4}  {file}  {function}")


if __name__ == "__main__":
    main()
