"""The tokens of a block: synthesised from its hash id as in seed 002, or read from a file of token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim.workload.sessions import continuations
from kvcache_sim.workload.trace import NO_REQUEST, Trace

#: Returns the token ids of one request's prompt.
PromptTokens = Callable[[int], Sequence[int]]


class BlockTokens:
    """The tokens of each block of a trace's prompts, from one function that gives a prompt's tokens.

    A block of an answer has the tokens that the session's next turn shows there; one that none shows has
    none. Keeps the last prompt it was asked for. Cost: one prompt's tokens a request.
    """

    def __init__(self, trace: Trace, block_size_tokens: int, prompt: PromptTokens) -> None:
        self._lengths = trace.input_tokens.tolist()
        self._next = continuations(trace).tolist()
        #: Tokens of a block.
        self.block_size_tokens = block_size_tokens
        self._prompt = prompt
        self._last: tuple[int, Sequence[int]] = (NO_REQUEST, ())

    def of(self, request: int, block: int) -> tuple[int, ...]:
        """Return the token ids of a full block, empty where no prompt shows them."""
        size = self.block_size_tokens
        first, end = block * size, (block + 1) * size
        for source in (request, self._next[request]):
            if source != NO_REQUEST and end <= self._lengths[source]:
                if self._last[0] != source:
                    self._last = (source, self._prompt(source))
                return tuple(int(token) for token in self._last[1][first:end])
        return ()
