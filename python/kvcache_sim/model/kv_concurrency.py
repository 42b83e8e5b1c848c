"""Blocks of a request, maximum concurrency and logged tokens of a pool, in the words of a release of vLLM.

Sources: ``max_memory_usage_bytes`` of ``vllm/v1/kv_cache_interface.py``, and in ``vllm/v1/core`` of wheels to
0.33.0 ``get_max_concurrency_for_kv_cache_config``, what is logged as "GPU KV cache size" and
``_max_memory_usage_bytes_from_groups``, which refuses a start.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from math import ceil

from kvcache_sim.base.values import Value
from kvcache_sim.model.block_layout import NEWEST, KvGroup, KvLayout, Release

#: Logged tokens: blocks times their size; from the first release on a group's share of the blocks times the
#: smallest size; from the second on the concurrency times the longest request.
_BY_SHARE: Release = (0, 9, 0)
_BY_CONCURRENCY: Release = (0, 20, 2)
#: Maximum concurrency: logged tokens by the longest request; from this release on blocks by a request's.
_BY_BLOCKS: Release = (0, 9, 2)
#: Until this release a block of a group counted by what its pages fill of the first group's.
_WHOLE_BLOCKS: Release = (0, 27, 1)
#: From this release on windows and chunks keep the tokens of all batches in flight.
_ALL_IN_FLIGHT: Release = (0, 26, 0)


class Demand(Value):
    """The settings of vLLM that say how many blocks a request reserves.

    ``batches_in_flight``: 2 with asynchronous scheduling, stages + 1 with runner V2, else 1.
    ``caches_states``: prefix caching of states (``mamba_cache_mode`` align) keeps two of them a request.
    """

    release: Release = NEWEST
    max_num_batched_tokens: int = 8192
    batches_in_flight: int = 2
    caches_states: bool = True
    draft_blocks: int = 0

    @property
    def tokens_in_flight(self) -> int:
        """Most tokens that are scheduled and whose step has not ended."""
        return self.max_num_batched_tokens * (self.batches_in_flight if self.release >= _ALL_IN_FLIGHT else 1)

    def blocks_of(self, group: KvGroup, tokens: int) -> int:
        """Return the blocks of a group that a request of ``tokens`` tokens reserves."""
        if group.kind == "linear":
            return (2 if self.caches_states else 1) + self.draft_blocks
        kept, more = tokens, 0
        if group.kind == "sliding":
            # A window may begin inside a block.
            kept, more = min(group.reach_tokens - 1 + self.tokens_in_flight, tokens), 1
        elif group.kind == "chunked":
            kept = min(group.reach_tokens + self.tokens_in_flight, tokens)
        return -(-kept // group.block_size_tokens) + more


def blocks_of_request(layout: KvLayout, tokens: int, demand: Demand) -> int:
    """Return the blocks that a request of ``tokens`` tokens counts in the maximum concurrency."""
    first = layout.groups[0].pages_bytes
    is_weighted = first and demand.release < _WHOLE_BLOCKS
    shares = [Fraction(group.pages_bytes, first) if is_weighted else 1 for group in layout.groups]
    blocks = [demand.blocks_of(group, tokens) for group in layout.groups]
    return ceil(sum(share * count for share, count in zip(shares, blocks, strict=True)))


def concurrency(layout: KvLayout, blocks: int, max_model_len: int, demand: Demand) -> float:
    """Return how many requests of ``max_model_len`` tokens ``blocks`` hold ("Maximum concurrency")."""
    if demand.release < _BY_BLOCKS:
        return logged_tokens(layout, blocks, max_model_len, demand) / max_model_len
    return blocks / blocks_of_request(layout, max_model_len, demand)


def logged_tokens(layout: KvLayout, blocks: int, max_model_len: int, demand: Demand) -> int:
    """Return the tokens that the release logs as "GPU KV cache size"."""
    if demand.release >= _BY_CONCURRENCY:
        return int(concurrency(layout, blocks, max_model_len, demand) * max_model_len)
    groups = len(layout.groups) if demand.release >= _BY_SHARE else 1
    return blocks // groups * min(group.block_size_tokens for group in layout.groups)


def needed_bytes(layout: KvLayout, tokens: int, demand: Demand) -> int:
    """Return the bytes that a start with requests of ``tokens`` tokens needs, or is refused."""
    blocks = sum(demand.blocks_of(group, tokens) for group in layout.groups)
    return blocks * (layout.reserved_bytes or layout.bytes_per_block)


def longest_tokens(layout: KvLayout, kv_bytes: int, max_model_len: int, demand: Demand) -> int:
    """Return the longest request, up to ``max_model_len``, with which a start succeeds; 0 if none."""
    lengths = range(1, max_model_len + 1)
    return bisect_right(lengths, kv_bytes, key=lambda tokens: needed_bytes(layout, tokens, demand))
