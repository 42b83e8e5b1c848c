"""A log's own token counts, held against its texts: bytes a token, tokens an image, unexplained tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from kvcache_sim.workload.imports.kind import Reading, Requests
from kvcache_sim.workload.imports.naming import Imported, Logged, Naming, Notes

#: Requests from which the bytes a token are learned.
_LEARNED_FROM = 1000
#: Bytes a token of any text and vocabulary: rows of numbers have about 3, Russian 5.8 (readers.settings).
_LEAST_BYTES, _MOST_BYTES = 2.5, 6.5
_IMAGE_TOKENS = range(16, 20_001)
#: Share of the counted tokens that texts may leave open without a note.
_OPEN = 0.15


class _Sizes(NamedTuple):
    """A counted prompt: its text in bytes, other tokens, images, and the count."""

    text_bytes: int
    other_tokens: int
    images: int
    counted: int


def named(requests: Requests, reading: Reading) -> Iterator[Imported]:
    """Yield the requests with their blocks, after learning from the first of them; note what was learned."""
    naming, notes = reading.naming, reading.notes
    rows = (row for _, row in requests)
    first = [] if naming.is_exact else list(islice(rows, _LEARNED_FROM))
    sizes = [size for row in first if isinstance(row, Logged) if (size := _sizes(naming, row))]
    said = _learn(naming, sizes)
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
    _note_open(notes, counted, more, less)


def _sizes(naming: Naming, row: Logged) -> _Sizes | None:
    if row.input_tokens is None or row.prompt is None:
        return None
    text_bytes = other = images = 0
    for piece in naming.pieces(row.prompt):
        if piece.text is not None:
            text_bytes += len(naming.encode(piece.text))
        elif piece.segments[0].kind == "image":
            images += 1
        else:
            other += piece.segments[0].tokens or 0
    return _Sizes(text_bytes, other, images, row.input_tokens)


def _learn(naming: Naming, sizes: list[_Sizes]) -> str:
    """Set the bytes a token and the tokens an image; return what was learned, "" for nothing."""
    plain = [size for size in sizes if not size.images and size.counted > size.other_tokens]
    ratio = _median([(size.text_bytes / (size.counted - size.other_tokens), size.counted) for size in plain])
    said = ""
    if ratio is not None and _LEAST_BYTES <= ratio <= _MOST_BYTES:
        naming.bytes_per_token = ratio
        said = f"{ratio:.2f} bytes a token by the counts of {len(plain):,} requests"
    pictured = [size for size in sizes if size.images]
    left = sum(
        size.counted - size.other_tokens - size.text_bytes / naming.bytes_per_token for size in pictured
    )
    each = round(left / max(1, sum(size.images for size in pictured)))
    if each in _IMAGE_TOKENS:
        naming.image_tokens = each
        said = f"{said or naming.said}; an image has {each:,} tokens by the log's counts"
    return said


def _median(values: list[tuple[float, int]]) -> float | None:
    """Return the value at half of the weight; None without values."""
    half, passed = sum(weight for _, weight in values) / 2, 0
    for value, weight in sorted(values):
        passed += weight
        if passed >= half:
            return value
    return None


def _note_open(notes: Notes, counted: int, more: int, less: int) -> None:
    """Note counted tokens that the texts do not explain."""
    if more + less <= _OPEN * counted:
        return
    share = f"{100 * (more + less) / counted:.0f} % of the {counted:,} counted prompt tokens"
    if more >= less:
        notes.remark(
            f"{share} are not in the texts of the log: tools, system texts or history may be missing"
        )
    else:
        notes.remark(f"{share} are unexplained: the texts have more tokens than were counted")
