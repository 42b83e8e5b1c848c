"""The block that the ids of a JSON-lines trace fit, told from its first rows."""

from __future__ import annotations

import json

#: Blocks that are tried: the powers of two that engines and published traces use.
_POWERS = [1 << power for power in range(17)]


def fitting_block(head: bytes, own: int) -> int:
    """Return the format's ``own`` block where the rows of ``head`` fit it, else the one power that they fit.

    A row fits where it has an id for each block of its prompt, the last one partial or left out. Where no
    power fits all rows, or several do, it is the format's own.
    """
    rows = _counted(head)
    fits = [
        block
        for block in (own, *_POWERS)
        if not [tokens for ids, tokens in rows if ids not in (tokens // block, -(-tokens // block))]
    ]
    return fits[0] if rows and (own in fits or len(fits) == 1) else own


def guessed_block(block: int, rows: int) -> tuple[str, int, int, str]:
    """Return the remark on a block that was told from the first rows: kind, rows, line 0, and a sentence."""
    said = f"ids and lengths of the first rows fit blocks of {block} tokens alone: they are taken as such"
    return "block-size", rows, 0, said


def _counted(head: bytes) -> list[tuple[int, int]]:
    """Return (ids, prompt tokens) of the whole rows of a file's first bytes, of those that have ids."""
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found = []
    for line in lines if len(lines) == 1 else lines[:-1]:
        try:
            row = json.loads(line)
            ids, tokens = row["hash_ids"], row["input_length"]
        except (ValueError, RecursionError, KeyError, TypeError):
            continue
        if isinstance(ids, list) and ids and isinstance(tokens, int) and tokens > 0:
            found.append((len(ids), tokens))
    return found
