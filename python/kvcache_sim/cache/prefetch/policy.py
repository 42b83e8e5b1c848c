"""The contract of a prefetch policy: called on its occasions, it returns the blocks to prefetch."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Candidate(NamedTuple):
    """A request whose blocks could be prefetched to the cpu tier now."""

    #: ``queued``: it has arrived and waits; ``session``: it is the next turn of a paused session.
    occasion: str
    request: int
    prompt_tokens: int
    #: Leading blocks that may hit.
    blocks: int
    now_ns: int


class PrefetchPolicy(Protocol):
    """Decides the blocks to prefetch. Blocks in flight stay within ``prefetch.share`` of the tier."""

    #: The occasions on which ``blocks`` is called: ``queued``, ``session`` or both.
    occasions: tuple[str, ...]

    def blocks(self, candidate: Candidate) -> int:
        """Return the number of leading blocks to prefetch.

        Args:
            candidate: The request: its prompt in tokens, its matchable blocks, the time in ns.

        Returns:
            A number from 0 (none) to ``candidate.blocks``.
        """
        ...
