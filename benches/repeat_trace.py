"""Repeat a Mooncake trace on standard output: copy after copy, each with blocks of its own.

    python benches/repeat_trace.py ../shared/traces/conversation_trace.jsonl 832 > ten_million.jsonl

A copy starts a second after the last request of the copy before. 832 copies of the conversation trace are ten
million requests, 2.2 GB. Cost: one copy in memory, 10 µs per row. ``kvsim trace repeat`` does the same in
memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

_GAP_MS = 1000


def main(path: str, times: int) -> int:
    """Write the rows."""
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    distinct = 1 + max(max(row["hash_ids"], default=0) for row in rows)
    span = rows[-1]["timestamp"] + _GAP_MS
    for copy in range(times):
        lines = []
        for row in rows:
            ids = ", ".join([str(known + copy * distinct) for known in row["hash_ids"]])
            lines.append(
                f'{{"timestamp": {row["timestamp"] + copy * span}, "input_length": {row["input_length"]}, '
                f'"output_length": {row["output_length"]}, "hash_ids": [{ids}]}}\n'
            )
        sys.stdout.write("".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
