"""Block ids of a recording: keyed hashes; without the key they only tell which prompts begin alike."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b


def salted_ids(tokens: Sequence[int], block_size: int, salt: bytes) -> list[int]:
    """Return a 63-bit id of each full block and all before it. Cost: a hash a block."""
    packed, parent, ids = array("I", tokens).tobytes(), b"", []
    key = blake2b(salt, digest_size=32).digest()
    for start in range(0, len(tokens) // block_size * block_size, block_size):
        block = packed[4 * start : 4 * (start + block_size)]
        parent = blake2b(parent + block, digest_size=16, key=key).digest()
        ids.append(int.from_bytes(parent[:8], "big") >> 1)
    return ids
