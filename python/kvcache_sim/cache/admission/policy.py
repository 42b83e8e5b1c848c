"""The contract of an admission policy: the number of a finished request's blocks that the cache keeps."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Finished(NamedTuple):
    """A request that has finished, before its blocks are evictable."""

    request: int
    turn: int
    in_session: bool
    prompt_tokens: int
    output_tokens: int
    #: Tokens of its prompt that were reused.
    cached_tokens: int
    block_size_tokens: int
    #: Whole blocks that it holds, generated ones included.
    blocks: int


class AdmissionPolicy(Protocol):
    """Decides which blocks stay in the cache when a request ends.

    The other blocks leave all tiers at once, last first, until the first block that is held, in flight or
    followed by another block.
    """

    def kept_blocks(self, finished: Finished) -> int:
        """Return the number of leading blocks to keep.

        Args:
            finished: The request; lengths in tokens, ``blocks`` in whole blocks.

        Returns:
            A number from 0 to ``finished.blocks``.
        """
        ...
