"""vLLM 0.33's block hashes (``v1/core/kv_cache_utils.py``): SHA-256 over pickle or CBOR."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from hashlib import sha256

_SEED = "vllm-none-hash"

Extra = tuple[object, ...] | None
Serialise = Callable[[object], bytes]


def _pickled(value: object) -> bytes:
    return pickle.dumps(value, protocol=5)


def _head(major: int, value: int) -> bytes:
    """Return the canonical head of a CBOR item: a major type and a length or number."""
    if value < 24:
        return bytes([major << 5 | value])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if value < 1 << (8 * size):
            return bytes([major << 5 | code]) + value.to_bytes(size, "big")
    raise OverflowError(value)


def cbor(value: object) -> bytes:
    """Return canonical CBOR of bytes, texts, integers, None, and tuples of these."""
    if value is None:
        return b"\xf6"
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _head(3, len(text)) + text
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    assert isinstance(value, tuple)
    return _head(4, len(value)) + b"".join(map(cbor, value))


ALGORITHMS: dict[str, Serialise] = {"sha256": _pickled, "sha256_cbor": cbor}


class BlockHashes:
    """The chain of hashes of one algorithm; ``seed``: the root's, by default PYTHONHASHSEED or vLLM's own."""

    def __init__(self, algorithm: str, seed: str | None = None) -> None:
        self._serialise = ALGORITHMS[algorithm]
        root = seed or os.environ.get("PYTHONHASHSEED") or _SEED
        #: Hash of the parent of the first block.
        self.root = sha256(self._serialise(root)).digest()

    def block(self, parent: bytes, tokens: Sequence[int], extra: Extra = None) -> bytes:
        """Return the hash of a block after its parent."""
        return sha256(self._serialise((parent, tuple(tokens), extra))).digest()


def as_integer(digest: bytes) -> int:
    """Return the number that is published for a hash: its last 64 bits, unsigned."""
    return int.from_bytes(digest[-8:], "big")
