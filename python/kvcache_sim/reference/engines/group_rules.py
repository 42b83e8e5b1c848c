"""What each kind of KV cache group finds, drops and keeps: vLLM 0.33.0's rules, one function each.

``single_type_kv_cache_manager.py`` is where they come from: ``find_longest_cache_hit``,
``get_num_skipped_tokens``, ``reachable_block_mask`` and ``max_admission_blocks_per_request``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvcache_sim.model.kv_groups import KvGroup

#: Whether a kind of group has block k in all its groups.
Present = Callable[[int], bool]


def cdiv(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def window_blocks(group: KvGroup) -> int:
    """Return how many blocks behind a position a sliding group must still have."""
    return cdiv(group.reach_tokens - 1, group.block_size_tokens)


def skipped_blocks(group: KvGroup, computed: int) -> int:
    """Return how many leading blocks nobody reads any more once ``computed`` tokens are."""
    size = group.block_size_tokens
    if group.kind == "sliding":
        return max(0, computed - group.reach_tokens + 1) // size
    if group.kind == "chunked":
        return computed // group.reach_tokens * group.reach_tokens // size
    return max(0, computed - 1) // size if group.kind == "linear" else 0


def hit_blocks(group: KvGroup, limit: int, align: int, present: Present) -> range:
    """Return the blocks that a hit of at most ``limit`` tokens uses; its end is the hit, 0 for none."""
    size, most = group.block_size_tokens, limit // group.block_size_tokens
    if group.kind == "linear":
        fits = (k for k in range(most - 1, -1, -1) if (k + 1) * size % align == 0 and present(k))
        last = next(fits, None)
        return range(0) if last is None else range(last, last + 1)
    if group.kind == "sliding":
        return _window_hit(group, most, align, present)
    start = skipped_blocks(group, limit) if group.kind == "chunked" else 0
    missing = (k for k in range(start, most) if not present(k))
    end = next(missing, max(most, start)) * size // align * align // size
    return range(start, end)


def _window_hit(group: KvGroup, most: int, align: int, present: Present) -> range:
    size, need = group.block_size_tokens, window_blocks(group)
    length = 0
    for k in range(most - 1, -1, -1):
        if not present(k):
            length = 0
        elif length or (k + 1) * size % align == 0:
            length += 1
            if length >= need:
                return range(k, k + length)
    return range(length)


def retained(group: KvGroup, block: int, align: int, interval: int | None, boundaries: Iterable[int]) -> bool:
    """Whether a full block gets a key, so that a later request can find it."""
    size = group.block_size_tokens
    if group.kind in ("full", "chunked") or (group.kind == "linear" and interval is None):
        return True
    need = window_blocks(group) if group.kind == "sliding" else 1
    segment = (align if interval is None else interval) // size
    if segment and (need >= segment or block % segment >= segment - need):
        return True
    if interval is None:
        return False
    ends = (boundary // align * align // size for boundary in boundaries)
    return any(end - need <= block < end for end in ends)


def admission_blocks(group: KvGroup, tokens: int, in_flight: int, longest: int) -> int:
    """Return the blocks that a whole sequence is counted with when it asks to be admitted.

    ``in_flight``: the most tokens that steps under way compute; ``longest``: those of the longest sequence.
    """
    size = group.block_size_tokens
    needed = cdiv(tokens, size)
    if group.kind == "sliding":
        return min(needed, cdiv(min(group.reach_tokens - 1 + in_flight, longest), size) + 1)
    if group.kind == "chunked":
        return min(needed, cdiv(min(group.reach_tokens + in_flight, longest), size))
    return needed


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of a request's tokens, before it is cut where a state can be kept; all counts are tokens.

    ``tokens`` it may have, at most those that the request lacks, ``most_tokens`` any chunk; ``known`` are
    to be computed before it decodes; ``junction``: where it parted from what was found, 0 where it did not.
    """

    computed: int
    tokens: int
    most_tokens: int
    known: int
    prompt: int
    junction: int


def chunk_end(groups: tuple[KvGroup, ...], chunk: Chunk) -> int:
    """Return where a chunk ends; a state must end where it can be kept (``_mamba_block_aligned_split``).

    Not beyond ``computed`` where its tokens are too few for that.
    """
    start, end = chunk.computed, chunk.computed + chunk.tokens
    prefill_end = max(chunk.prompt, chunk.known - 1)
    sizes = [group.block_size_tokens for group in groups if group.kind == "linear"]
    if not sizes or start >= prefill_end:
        return end
    size = sizes[0]
    aligned = end // size * size
    if end < prefill_end and (aligned > start or size <= chunk.most_tokens):
        end = aligned
    stops = [cdiv(start, size) * size, (chunk.known - 1) // size * size]
    if start < chunk.junction < end:
        stops.append(start + (chunk.junction - start) // size * size)
    return min((stop for stop in stops if start < stop < end), default=end)
