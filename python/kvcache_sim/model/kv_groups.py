"""KV cache groups: an engine's layout of a model's kinds of layers in one pool of equal blocks.

The rules are vLLM's (``vllm/v1/core/kv_cache_utils.py``, from 0.30 on ``kv_cache_planning.py``, and the
platform's block size for state spaces): layers of one kind share block tables, every block is one page for
each layer of *one* group, and a kind with a smaller page gets a larger block. Compressed latents have other
rules (``packed_groups``).
"""

from __future__ import annotations

import math
from fractions import Fraction

from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.attention import LayerCache
from kvcache_sim.model.block_layout import NEWEST, GroupKind, KvGroup, KvLayout, Release
from kvcache_sim.model.latent_attention import CompressedAttention, LatentAttention
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.packed_groups import packed_layout

__all__ = ["NEWEST", "GroupKind", "KvGroup", "KvLayout", "Release", "kv_layout", "token_bytes"]


_KINDS: dict[str, GroupKind] = {"all": "full", "window": "sliding", "chunk": "chunked", "state": "linear"}
#: Attention kernels use blocks of a multiple of this many tokens: of heads, of latents, of chosen latents.
_KERNEL_BLOCK_TOKENS = 16
_LATENT_BLOCK_TOKENS = 64
#: From the first release on latents next to states have blocks of 128 tokens (FlashInfer's kernels); from the
#: second on a block that holds a state is a multiple of the requested one (``platforms/interface.py``).
_WIDE_LATENTS: Release = (0, 33, 0)
_WIDE_BLOCKS: Release = (0, 20, 0)
#: Two kinds of layers whose ratio is below this share one group size, and the smaller kind is padded; from a
#: release on.
_NEARLY_EQUAL: tuple[tuple[Release, float], ...] = (((0, 18, 0), 1.5), ((0, 12, 0), 1.25), ((), 0.0))


def kv_layout(
    model: ModelSpec, tensor_parallel: int = 1, block_size_tokens: int = 16, release: Release = NEWEST
) -> KvLayout:
    """Return the groups that vLLM creates for a model's layers on one of ``tensor_parallel`` GPUs.

    ``block_size_tokens`` is the requested block size. A kernel raises it to a multiple of its own, a state
    until a page of attention holds one. Raises UsageError for layers whose layout is not known.
    """
    kinds = [attention for _, attention in model.attention_layers()]
    if any(isinstance(kind, CompressedAttention) for kind in kinds):
        return packed_layout(model, release)
    caches = model.caches(tensor_parallel)
    if not caches:
        raise UsageError("no layer keeps anything of a sequence", where=model.name)
    if all(cache.reach == "all" for cache in caches):
        if any(isinstance(kind, LatentAttention) and kind.indexer for kind in kinds):
            block_size_tokens = _multiple(block_size_tokens, _LATENT_BLOCK_TOKENS)
        return _one_group(caches, block_size_tokens, model.name)
    layers = [layer for found in caches.values() for layer in found]
    if len(set(layers)) < len(layers) or any(cache.tokens_per_entry > 1 for cache in caches):
        raise UsageError(
            "layers with several kinds of entries, next to windows or states, cannot be grouped",
            where=model.name,
            got=", ".join(sorted({cache.what for cache in caches})),
            expected="one kind of entry a layer",
        )
    kernel = _KERNEL_BLOCK_TOKENS
    if any(isinstance(kind, LatentAttention) for kind in kinds):
        kernel = _LATENT_BLOCK_TOKENS * (2 if release >= _WIDE_LATENTS else 1)
    if release >= _WIDE_BLOCKS:
        kernel = max(kernel, block_size_tokens)
    block = _block_for_states(caches, block_size_tokens, kernel)
    return _equal_pages(caches, block, release)


def token_bytes(model: ModelSpec) -> int:
    """Return the bytes that a token adds to a block over all layers; 0 where blocks of tokens do not say it.

    They do not for a layout that is not known, and for compressed latents, whose memory is mostly that of
    windows and sums; only vLLM's layout of them is known.
    """
    if any(isinstance(attention, CompressedAttention) for _, attention in model.attention_layers()):
        return 0
    try:
        kv_layout(model)
    except UsageError:
        return 0
    return model.kv_bytes_per_token


def _equal_pages(caches: dict[LayerCache, tuple[int, ...]], block: int, release: Release) -> KvLayout:
    """Return the layout of kinds of layers in groups of one size and pages of one size."""
    pages = {cache: _page_bytes(cache, block) for cache in caches}
    page = max(pages.values())
    buckets = sorted(caches.items(), key=lambda item: item[1][0])
    counts = [len(numbers) for _, numbers in buckets]
    ratio = next(ratio for since, ratio in _NEARLY_EQUAL if release >= since)
    size = max(counts) if max(counts) < ratio * min(counts) else min(counts)
    groups = []
    for cache, numbers in buckets:
        whole = cache.reach != "state" and page % pages[cache] == 0
        tokens = block * (page // pages[cache] if whole else 1)
        number = -(-len(numbers) // size)
        for part in (numbers[i::number] for i in range(number)):
            kept = cache.entry_bytes * len(part)
            groups.append(KvGroup(_KINDS[cache.reach], tokens, cache.reach_tokens, part, kept))
    return KvLayout(tuple(groups), page, size)


def _one_group(caches: dict[LayerCache, tuple[int, ...]], block: int, name: str) -> KvLayout:
    """Return the layout of full attention alone: all layers in one group, whatever their pages."""
    if any(block % cache.tokens_per_entry for cache in caches):
        raise UsageError("a block holds no whole entries", where=name, got=f"{block} tokens")
    layers = sorted({layer for numbers in caches.values() for layer in numbers})
    total = sum(_page_bytes(cache, block) * len(numbers) for cache, numbers in caches.items())
    group = KvGroup("full", block, 0, tuple(layers), math.ceil(Fraction(total, block)))
    whole = total % len(layers) == 0
    return KvLayout((group,), total // len(layers) if whole else total, len(layers) if whole else 1)


def _page_bytes(cache: LayerCache, block: int) -> int:
    if cache.reach == "state":
        return cache.entry_bytes
    return block // cache.tokens_per_entry * cache.entry_bytes


def _block_for_states(caches: dict[LayerCache, tuple[int, ...]], block: int, kernel: int) -> int:
    """Return the block size in multiples of ``kernel`` whose attention page holds the largest state."""
    states = [cache.entry_bytes for cache in caches if cache.reach == "state"]
    tokens = [cache.entry_bytes for cache in caches if cache.reach != "state"]
    if not states or not tokens:
        return block
    return max(block, _multiple(-(-max(states) // max(tokens)), kernel))


def _multiple(tokens: int, of: int) -> int:
    return -(-tokens // of) * of
