"""The first bytes of a source that tell what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcache_sim._core import TraceSource

#: Bytes of a file that detection looks at, behind its blank lines; of these no more than the second.
HEAD_BYTES, MOST_BLANK_BYTES = 1 << 16, 1 << 24
_BLANK = b" \t\r\n\v\f"


def read_head(source: TraceSource) -> bytes:
    """Return the first bytes of a source, not consumed: more of them where it begins with blank lines."""
    size = HEAD_BYTES
    head = source.head(size)
    while len(head) == size and not head.strip(_BLANK) and size < MOST_BLANK_BYTES:
        size *= 4
        head = source.head(size)
    return head
