"""KV cache groups: an engine's layout of a model's kinds of layers in one pool of equal blocks.

The rules are vLLM 0.33.0's (``vllm/v1/core/kv_cache_planning.py`` and the platform's block size for state
spaces): layers of one kind share block tables, every block is one page for each layer of *one* group, and a
kind with a smaller page gets a larger block.
"""

from __future__ import annotations

import math
from typing import Literal

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.attention import LayerCache
from kvcache_sim.model.model_spec import ModelSpec

#: Retention of a group: every block, blocks of a window, blocks of the current chunk, or the last state.
GroupKind = Literal["full", "sliding", "chunked", "linear"]
_KINDS: dict[str, GroupKind] = {"all": "full", "window": "sliding", "chunk": "chunked", "state": "linear"}
#: Attention kernels use blocks of a multiple of this many tokens.
_KERNEL_BLOCK_TOKENS = 16
#: Two kinds of layers whose ratio is below this share one group size; the smaller kind is padded.
_NEARLY_EQUAL = 1.5


class KvGroup(Value):
    """Layers that share block tables, with ``block_size_tokens`` per block.

    ``layers`` are their numbers. ``reach_tokens`` is a window or chunk, 0 for ``full`` and ``linear``.
    """

    kind: GroupKind
    block_size_tokens: int
    reach_tokens: int
    layers: tuple[int, ...]

    @property
    def name(self) -> str:
        """The group's kind in a word: ``full``, ``swa128``, ``chunked8192``, ``mamba``."""
        short = {"full": "full", "sliding": "swa", "chunked": "chunked", "linear": "mamba"}[self.kind]
        return f"{short}{self.reach_tokens or ''}"


class KvLayout(Value):
    """The groups of a model in one pool: a block holds ``layers_per_group`` pages of ``page_bytes``."""

    groups: tuple[KvGroup, ...]
    page_bytes: int
    layers_per_group: int

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block on one GPU, whichever group owns it."""
        return self.page_bytes * self.layers_per_group

    @property
    def hash_block_size(self) -> int:
        """Tokens covered by one prompt hash: a common divisor of all groups' block sizes."""
        return math.gcd(*(group.block_size_tokens for group in self.groups))

    @property
    def scheduler_block_size(self) -> int:
        """Granularity of hits in tokens: a common multiple of all groups' block sizes."""
        return math.lcm(*(group.block_size_tokens for group in self.groups))


def kv_layout(model: ModelSpec, tensor_parallel: int = 1, block_size_tokens: int = 16) -> KvLayout:
    """Return the groups that vLLM creates for a model's layers on one of ``tensor_parallel`` GPUs.

    ``block_size_tokens`` is the requested block size; a recurrent state raises it until a page of attention
    holds one state. Raises UsageError for caches that vLLM lays out by model-specific rules (compressed
    latents).
    """
    caches = model.caches(tensor_parallel)
    if not caches:
        raise UsageError("no layer keeps anything of a sequence", where=model.name)
    if all(cache.reach == "all" for cache in caches):
        return _one_group(caches, block_size_tokens, model.name)
    layers = [layer for found in caches.values() for layer in found]
    if len(set(layers)) < len(layers) or any(cache.tokens_per_entry > 1 for cache in caches):
        raise UsageError(
            "layers with several kinds of entries, next to windows or states, cannot be grouped",
            where=model.name,
            got=", ".join(sorted({cache.what for cache in caches})),
            expected="one kind of entry a layer",
        )
    block = _block_for_states(caches, block_size_tokens)
    pages = {cache: _page_bytes(cache, block) for cache in caches}
    page = max(pages.values())
    buckets = sorted(caches.items(), key=lambda item: item[1][0])
    counts = [len(numbers) for _, numbers in buckets]
    size = max(counts) if max(counts) < _NEARLY_EQUAL * min(counts) else min(counts)
    groups = []
    for cache, numbers in buckets:
        whole = cache.reach != "state" and page % pages[cache] == 0
        tokens = block * (page // pages[cache] if whole else 1)
        number = -(-len(numbers) // size)
        groups += [
            KvGroup(_KINDS[cache.reach], tokens, cache.reach_tokens, numbers[i::number])
            for i in range(number)
        ]
    return KvLayout(tuple(groups), page, size)


def _one_group(caches: dict[LayerCache, tuple[int, ...]], block: int, name: str) -> KvLayout:
    """Return the layout of full attention alone: all layers in one group, whatever their pages."""
    if any(block % cache.tokens_per_entry for cache in caches):
        raise UsageError("a block holds no whole entries", where=name, got=f"{block} tokens")
    layers = sorted({layer for numbers in caches.values() for layer in numbers})
    total = sum(_page_bytes(cache, block) * len(numbers) for cache, numbers in caches.items())
    group = KvGroup("full", block, 0, tuple(layers))
    whole = total % len(layers) == 0
    return KvLayout((group,), total // len(layers) if whole else total, len(layers) if whole else 1)


def _page_bytes(cache: LayerCache, block: int) -> int:
    if cache.reach == "state":
        return cache.entry_bytes
    return block // cache.tokens_per_entry * cache.entry_bytes


def _block_for_states(caches: dict[LayerCache, tuple[int, ...]], block: int) -> int:
    """Return the block size whose smallest attention page holds the largest state."""
    states = [cache.entry_bytes for cache in caches if cache.reach == "state"]
    tokens = [cache.entry_bytes for cache in caches if cache.reach != "state"]
    if not states or not tokens:
        return block
    needed = -(-max(states) // (_KERNEL_BLOCK_TOKENS * max(tokens))) * _KERNEL_BLOCK_TOKENS
    return max(block, needed)
