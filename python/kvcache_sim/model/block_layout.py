"""Groups of layers in one pool of equal blocks, as an engine's release lays a model out."""

from __future__ import annotations

import math
from typing import Literal

from kvcache_sim.base.values import Value

#: A release of vLLM: (0, 33, 0).
Release = tuple[int, ...]
#: The newest release whose layouts these are.
NEWEST: Release = (0, 33, 0)
#: Retention of a group: every block, blocks of a window, blocks of the current chunk, or the last state.
GroupKind = Literal["full", "sliding", "chunked", "linear"]


class KvGroup(Value):
    """Layers that share block tables, with ``block_size_tokens`` per block.

    ``layers`` are their numbers. ``reach_tokens`` is a window or chunk, 0 for ``full`` and ``linear``.
    ``kept_bytes`` is what its layers keep of one token, or as their states, without padding; ``pages_bytes``
    what its pages fill of a block, where groups differ (else 0). ``what`` names it where the kind does not.
    """

    kind: GroupKind
    block_size_tokens: int
    reach_tokens: int
    layers: tuple[int, ...]
    kept_bytes: int = 0
    pages_bytes: int = 0
    what: str = ""

    @property
    def name(self) -> str:
        """The group's kind in a word: ``full``, ``swa128``, ``chunked8192``, ``mamba``, ``sums8``."""
        short = {"full": "full", "sliding": "swa", "chunked": "chunked", "linear": "mamba"}[self.kind]
        return f"{self.what or short}{self.reach_tokens or ''}"


class KvLayout(Value):
    """The groups of a model in one pool: a block holds ``layers_per_group`` pages of ``page_bytes``.

    ``reserved_bytes`` is what vLLM's start counts for a block of a request, 0 if that is the block's bytes.
    """

    groups: tuple[KvGroup, ...]
    page_bytes: int
    layers_per_group: int
    reserved_bytes: int = 0

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
