"""What a prefetch policy is: asked on its occasions, it says how much of a prompt to bring up."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Candidate(NamedTuple):
    """A request whose blocks could be brought up to the cpu tier now."""

    #: ``queued``: it has arrived and waits; ``session``: its session's next turn is a while away.
    occasion: str
    request: int
    prompt_tokens: int
    #: Leading blocks that may hit.
    blocks: int
    now_ns: int


class PrefetchPolicy(Protocol):
    """Decides what moves up ahead of its request. What is on its way stays within ``prefetch.share``."""

    #: The occasions on which it wants to be asked: ``queued``, ``session`` or both.
    occasions: tuple[str, ...]

    def blocks(self, candidate: Candidate) -> int:
        """Return how many of the candidate's leading blocks to bring up, 0 for none."""
        ...
