"""Keys of blocks, the trace's ids that cover them, and the tokens of each block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvcache_sim import _core
from kvcache_sim.workload.key_arrays import key_arrays
from kvcache_sim.workload.sessions import continuations
from kvcache_sim.workload.tokens.row_key import id_name
from kvcache_sim.workload.trace import NO_REQUEST, Trace


class BlockNames:
    """Identity of each block of a trace's requests: its key, and the trace's id that covers it.

    Keeps the trace's ids as a list: 8 bytes per id reference.
    """

    def __init__(self, trace: Trace, block_size_tokens: int) -> None:
        arrays = key_arrays(trace, block_size_tokens)
        self._trace = trace
        self._blocks_per_id = arrays[2]
        self._keys = _core.Keys(*arrays)

    @property
    def requests(self) -> int:
        """Number of requests of the trace."""
        return len(self._trace)

    def key(self, request: int, block: int) -> int:
        """Return a block's key, as in both stores; private keys of answers have bit 63 set."""
        return self._keys.key(request, block)

    def hash_id(self, request: int, block: int) -> int | str | None:
        """Return the trace's own id that covers a block; None for an answer that no later prompt contains."""
        key = self.key(request, block)
        return None if key >> 63 else id_name(self._trace, key // self._blocks_per_id)


#: Returns the token ids of one request's prompt.
PromptTokens = Callable[[int], Sequence[int]]


class BlockTokens:
    """The tokens of each block of a trace's prompts, from a function that returns a prompt's tokens.

    A block of an answer has the tokens of the session's next turn there; without such a turn it has none.
    Caches the last prompt. Cost: one prompt's tokens per request.
    """

    def __init__(self, trace: Trace, block_size_tokens: int, prompt: PromptTokens) -> None:
        self._lengths = trace.input_tokens.tolist()
        self._next = continuations(trace).tolist()
        #: Tokens per block.
        self.block_size_tokens = block_size_tokens
        self._prompt = prompt
        self._last: tuple[int, Sequence[int]] = (NO_REQUEST, ())

    def of(self, request: int, block: int) -> tuple[int, ...]:
        """Return the token ids of a full block; empty if no prompt contains them."""
        size = self.block_size_tokens
        first, end = block * size, (block + 1) * size
        for source in (request, self._next[request]):
            if source != NO_REQUEST and end <= self._lengths[source]:
                if self._last[0] != source:
                    self._last = (source, self._prompt(source))
                return tuple(int(token) for token in self._last[1][first:end])
        return ()
