"""What an admission policy is: told of a finished request, it says how much of it the cache keeps."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Finished(NamedTuple):
    """A request that has finished, before its blocks are anybody's to evict."""

    request: int
    turn: int
    in_session: bool
    prompt_tokens: int
    output_tokens: int
    #: Of its prompt, the tokens that were reused.
    cached_tokens: int
    block_size_tokens: int
    #: Whole blocks that it holds, generated ones included.
    blocks: int


class AdmissionPolicy(Protocol):
    """Decides what stays in the cache when a request ends.

    What is not admitted leaves all tiers at once, from the end of the path up to the first block that is
    held, in flight or followed by another one.
    """

    def kept_blocks(self, finished: Finished) -> int:
        """Return how many of its leading blocks are kept."""
        ...
