"""A log's own token counts, held against its texts: bytes a token, tokens an image, unexplained tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from statistics import median
from typing import NamedTuple

from kvcache_sim.workload.imports.kind import Reading
from kvcache_sim.workload.imports.naming import Imported, Logged, Naming

#: Requests from which the bytes a token are learned.
_LEARNED_FROM = 1000
#: Bytes a token of any text and vocabulary: rows of numbers have about 3, Russian 5.8 (readers.settings).
_LEAST_BYTES, _MOST_BYTES = 2.5, 6.5
_IMAGE_TOKENS = range(16, 20_001)
#: Share of the counted tokens that texts may leave open without a note.
_OPEN = 0.15


class _Sizes(NamedTuple):
    """A counted prompt: its text in bytes, its images, and the counted tokens of both."""

    text_bytes: int
    images: int
    tokens: int


def named(requests: Iterator[tuple[int, Imported | Logged]], reading: Reading) -> Iterator[Imported]:
    """Yield the requests with their blocks, after learning from the first of them; note what was learned."""
    naming, notes = reading.naming, reading.notes
    rows = (row for _, row in requests)
    first = [] if naming.is_exact else list(islice(rows, _LEARNED_FROM))
    texts = [row for row in first if isinstance(row, Logged) and row.prompt is not None]
    said = _learn(naming, [_sizes(naming, row) for row in texts])
    counted = more = less = 0
    for row in chain(first, rows):
        found = naming.named(row) if isinstance(row, Logged) else row
        if isinstance(row, Logged) and row.input_tokens is not None and row.prompt is not None:
            counted += row.input_tokens
            more += max(0, row.input_tokens - found.prompt_tokens)
            less += max(0, found.prompt_tokens - row.input_tokens)
        yield found
    if naming.met_text and (said or naming.said):
        notes.remark(f"texts are hashed in blocks of {naming.block_size} tokens, {said or naming.said}")
    if naming.met_chat:
        notes.remark(f"chats are rendered as {naming.renderer.name}")
    if more + less > _OPEN * counted:
        share = f"{100 * (more + less) / counted:.0f} % of the {counted:,} counted prompt tokens are"
        missing = "not in the texts of the log: tools, system texts or history may be missing"
        notes.remark(f"{share} {missing if more >= less else 'unexplained: the texts have more tokens'}")


def _sizes(naming: Naming, row: Logged) -> _Sizes:
    pieces = naming.pieces(row.prompt)
    texts = sum(len(naming.encode(piece.text)) for piece in pieces if piece.text is not None)
    others = [piece.segments[0] for piece in pieces if piece.text is None]
    fixed = sum(segment.tokens or 0 for segment in others if segment.kind != "image")
    return _Sizes(texts, sum(segment.kind == "image" for segment in others), (row.input_tokens or 0) - fixed)


def _learn(naming: Naming, sizes: list[_Sizes]) -> str:
    """Set the bytes a token and the tokens an image; return what was learned, "" for nothing."""
    plain = [size for size in sizes if size.text_bytes and size.tokens > 0 and not size.images]
    ratio, said = median([size.text_bytes / size.tokens for size in plain] or [0]), ""
    if _LEAST_BYTES <= ratio <= _MOST_BYTES:
        naming.bytes_per_token = ratio
        said = f"{ratio:.2f} bytes a token by the counts of {len(plain):,} requests"
    pictured = [size for size in sizes if size.images and size.tokens > 0]
    left = sum(size.tokens - size.text_bytes / naming.bytes_per_token for size in pictured)
    each = round(left / max(1, sum(size.images for size in pictured)))
    if each in _IMAGE_TOKENS:
        naming.image_tokens = each
        said = f"{said or naming.said}; an image has {each:,} tokens by the log's counts"
    return said
