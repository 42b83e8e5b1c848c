"""Groups of DeepSeek-V4's compressed latents in vLLM: pages of several sizes side by side in one block.

A layer has a page of its window and, if it compresses, one of its latents, one of their index keys, and one
of the running sums of each. They stand in ``fp8_ds_mla``, and no page is split by TP. Sources:
``vllm/models/deepseek_v4`` and ``v1/attention/backends/mla/sparse_swa.py`` for the pages,
``v1/core/kv_cache_utils.py`` of 0.22.0, 0.26.0 and 0.28.0 and ``kv_cache_planning.py`` of 0.33.0 for groups.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

from msgspec.structs import replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.block_layout import GroupKind, KvGroup, KvLayout, Release
from kvcache_sim.model.dtypes import FP8_DS_MLA, size_bytes
from kvcache_sim.model.latent_attention import CompressedAttention
from kvcache_sim.model.model_spec import ModelSpec

#: Pages are padded to a multiple of these bytes.
_ALIGNMENT_BYTES = 576
#: Tokens per block: of latents and index keys, of windows, and of sums by the tokens that they compress.
_BLOCK_TOKENS = 256
_WINDOW_BLOCK_TOKENS = 64
_SUMS_BLOCK_TOKENS = {4: 4, 128: 8}
#: Bytes of a block: until the first release the longest group's number of pages, of each size; then for each
#: size the largest number in a group; from the second on the widest group, and pages of sums are not padded
#: to those of latents. From the third on a start counts a request's blocks by these bytes, and groups with
#: unequal numbers of pages do not count for the size of the others.
_BY_SIZE: Release = (0, 23, 0)
_BY_GROUP: Release = (0, 27, 1)
_GENERAL: Release = (0, 29, 0)


class _Table(Value):
    """A block table that several pages share: its kind, tokens per block and reach."""

    kind: GroupKind
    block_size_tokens: int
    reach_tokens: int = 0
    what: str = ""


class _Page(Value):
    """A page of some layers, its bytes, and the bytes in it of one token."""

    page_bytes: int
    token_bytes: Fraction
    layers: tuple[int, ...]


#: Pages with one block table, a kind of page each.
_Pages = tuple[_Page, ...]


def packed_layout(model: ModelSpec, release: Release) -> KvLayout:
    """Return the groups of a model of compressed latents in a release of vLLM.

    Raises UsageError for other compressions than vLLM's compressors have.
    """
    tables = _tables(model)
    whole = _Table("full", _BLOCK_TOKENS)
    sizes = {page.page_bytes for page in tables[whole]}
    if release < _BY_GROUP:
        tables = {table: _padded(pages, sizes) for table, pages in tables.items()}
    if release < _GENERAL:
        tables = {whole: tables[whole], **tables}
    repeats = _repeats(tables[whole], tables.values(), release)
    groups, parts = list[KvGroup](), list[_Pages]()
    for table, pages in tables.items():
        counts = {len(page.layers) for page in pages}
        number = -(-max(counts) // repeats) if len(counts) == 1 else 1
        for i in range(number):
            part = tuple(replace(page, layers=page.layers[i::number]) for page in pages)
            parts.append(part)
            groups.append(_group(table, part))
    longest = max(len(page.layers) for part in parts for page in part)
    reserved = longest * sum(sizes)
    if release < _BY_SIZE:
        block = reserved
    elif release < _BY_GROUP:
        slots = Counter[int]()
        for part in parts:
            slots |= sum((Counter({page.page_bytes: len(page.layers)}) for page in part), Counter())
        block = sum(page_bytes * count for page_bytes, count in slots.items())
    else:
        block = max(group.pages_bytes for group in groups)
    return KvLayout(tuple(groups), block, 1, reserved if release < _GENERAL else 0)


def _group(table: _Table, pages: _Pages) -> KvGroup:
    layers = sorted({layer for page in pages for layer in page.layers})
    kept = math.ceil(sum(page.token_bytes * len(page.layers) for page in pages))
    filled = sum(page.page_bytes * len(page.layers) for page in pages)
    block, reach = table.block_size_tokens, table.reach_tokens
    return KvGroup(table.kind, block, reach, tuple(layers), kept, filled, table.what)


def _padded(pages: _Pages, sizes: set[int]) -> _Pages:
    """Return pages padded to the next of some sizes."""
    return tuple(
        replace(page, page_bytes=min(size for size in sizes if size >= page.page_bytes)) for page in pages
    )


def _repeats(whole: _Pages, tables: Iterable[_Pages], release: Release) -> int:
    """Return the layers of a group: the number that pads least, and splits no table of several pages."""
    counts = [[len(page.layers) for page in pages] for pages in tables]
    if release < _GENERAL:
        least = max(len(page.layers) for page in whole)
    else:
        counts = [each for each in counts if len(set(each)) == 1]
        least = max((each[0] for each in counts if len(each) > 1), default=1)
    most = [max(each) for each in counts]
    return min(range(least, max(most) + 1), key=lambda size: (sum(-n % size for n in most), -size))


def _tables(model: ModelSpec) -> dict[_Table, _Pages]:
    """Return the pages of all layers by block table, in the order in which layers first have one."""
    found: dict[_Table, dict[Fraction, list[int]]] = {}
    for group in sorted(model.groups, key=lambda group: group.layers[0]):
        attention = group.attention
        if not isinstance(attention, CompressedAttention) or attention.ratio not in (0, *_SUMS_BLOCK_TOKENS):
            raise UsageError(
                "a layout that is not known: its layers cannot be grouped",
                where=model.name,
                got=f"{attention.kind if attention else 'no attention'} in layer {group.layers[0]}",
                expected="windows with latents of 4 or 128 tokens, in all layers",
            )
        for table, token_bytes in _kinds(attention):
            found.setdefault(table, {}).setdefault(token_bytes, []).extend(group.layers)
    return {
        table: tuple(
            _Page(_page_bytes(table, each), each, tuple(sorted(layers))) for each, layers in pages.items()
        )
        for table, pages in found.items()
    }


def _page_bytes(table: _Table, token_bytes: Fraction) -> int:
    return math.ceil(token_bytes * table.block_size_tokens / _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _kinds(attention: CompressedAttention) -> Iterator[tuple[_Table, Fraction]]:
    """Yield the pages of a layer: their block table, and the bytes of one token in them."""
    ratio, entries = attention.ratio, {cache.what: cache for cache in attention.caches(FP8_DS_MLA, 1)}
    widths = {"index keys": attention.indexer.key_size} if attention.indexer else {}
    for what, numbers in (widths | {"window": 0, "compressed latents": attention.head_size}).items():
        if what not in entries:
            continue
        entry = entries[what]
        if what == "window":
            yield _Table("sliding", _WINDOW_BLOCK_TOKENS, entry.reach_tokens), Fraction(entry.entry_bytes)
            continue
        yield _Table("full", _BLOCK_TOKENS), Fraction(entry.entry_bytes, ratio)
        # A value and a score of each number, for every window that a token belongs to.
        sums = size_bytes(2 * attention.windows * numbers, "fp32")
        yield _Table("sliding", _SUMS_BLOCK_TOKENS[ratio], attention.windows * ratio, "sums"), Fraction(sums)
