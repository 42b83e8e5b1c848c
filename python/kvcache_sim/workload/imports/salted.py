"""Block ids that tell nothing without a key: keyed hashes, which only show which prompts begin alike."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

from kvcache_sim.errors import InputOutputError


def salted_ids(tokens: Sequence[int], block_size: int, salt: bytes) -> list[int]:
    """Return a 63-bit id of each full block and all before it. Cost: a hash a block."""
    packed, parent, ids = array("I", tokens).tobytes(), b"", []
    key = _key(salt)
    for start in range(0, len(tokens) // block_size * block_size, block_size):
        block = packed[4 * start : 4 * (start + block_size)]
        parent = blake2b(parent + block, digest_size=16, key=key).digest()
        ids.append(_id(parent))
    return ids


def salted_names(names: Iterable[str], salt: bytes) -> list[int]:
    """Return a 63-bit id of each name, equal for equal ones: an engine's own hashes, sessions."""
    key = _key(salt)
    return [
        _id(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16, key=key).digest())
        for name in names
    ]


def salt_of(path: Path | None) -> bytes:
    """Return the salt of a file, without one a random one; InputOutputError where it cannot be read."""
    if path is None:
        return secrets.token_bytes(32)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputOutputError("cannot be read", str(path), error.strerror or "") from None


def _key(salt: bytes) -> bytes:
    return blake2b(salt, digest_size=32).digest()


def _id(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big") >> 1
