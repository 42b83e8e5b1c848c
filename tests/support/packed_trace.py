"""A Mooncake trace in a fiftieth of its size: the ids of a row are a prefix that was seen before and new ones.

In such a trace an id always follows the same id, new ids are counted up from 0, and a row has as many as its
prompt has blocks, the last partial one included. A row is then its time, its two lengths and the last id that
is not new; four columns of small numbers compress well.
"""

import json
import lzma

BLOCK_TOKENS = 512


def pack(jsonl: bytes) -> bytes:
    """Return the columns of a trace, compressed. Raises ValueError where it is none that can be had back."""
    parent: dict[int, int] = {}
    columns: list[list[int]] = [[], [], [], []]
    last = 0
    for line in jsonl.decode().splitlines():
        row = json.loads(line)
        ids, known = row["hash_ids"], -1
        for before, block in zip([-1, *ids], ids, strict=False):
            if block in parent:
                known = block
            parent.setdefault(block, before)
        facts = (row["timestamp"] - last, row["input_length"], row["output_length"], known)
        last = row["timestamp"]
        for column, fact in zip(columns, facts, strict=True):
            column.append(fact)
    text = "\n".join(" ".join(map(str, column)) for column in columns)
    packed = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    if unpack(packed) != jsonl:
        raise ValueError("the trace is not a forest of counted ids, or written otherwise")
    return packed


def unpack(packed: bytes) -> bytes:
    """Return the lines of a packed trace, as they were."""
    columns = [
        [int(number) for number in line.split()] for line in lzma.decompress(packed).decode().split("\n")
    ]
    parent: list[int] = []
    lines, now = [], 0
    for wait, inputs, outputs, known in zip(*columns, strict=True):
        now += wait
        ids = []
        while known >= 0:
            ids.append(known)
            known = parent[known]
        ids.reverse()
        while len(ids) * BLOCK_TOKENS < inputs:
            parent.append(ids[-1] if ids else -1)
            ids.append(len(parent) - 1)
        row = {"timestamp": now, "input_length": inputs, "output_length": outputs, "hash_ids": ids}
        lines.append(json.dumps(row) + "\n")
    return "".join(lines).encode()
