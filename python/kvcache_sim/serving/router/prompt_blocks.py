"""The blocks of a prompt as integers, for routers that record the prompts sent to each machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.serving.sequence import Arrival
from kvcache_sim.workload.trace import Trace


class PromptBlocks:
    """Maps each prefix of each prompt of a trace to an integer: equal integers, equal tokens.

    The ids of a trace are chained: an id and a number of its tokens identify the whole prefix.
    """

    def __init__(self, trace: Trace) -> None:
        self._ids, self._offsets = trace.block_ids, trace.id_offsets
        #: Tokens per id.
        self.id_tokens = trace.block_size

    def ids(self, sequence: Arrival) -> list[int]:
        """Return the trace's own ids of a prompt."""
        count = -(-sequence.prompt_num_tokens // self.id_tokens)
        return [int(one) for one in self._row(sequence)[:count]]

    def keys(self, sequence: Arrival, block_tokens: int, partial: bool) -> list[int]:
        """Return an integer for each block of a prompt; ``partial`` includes a last block that is not full.

        Cost: O(blocks), without a loop in Python.
        """
        prompt = sequence.prompt_num_tokens
        ends = np.arange(block_tokens, prompt + 1, block_tokens, dtype=np.int64)
        if partial and prompt % block_tokens:
            ends = np.append(ends, prompt)
        return self._named(sequence, ends).tolist()  # type: ignore[no-any-return]

    def head(self, sequence: Arrival, tokens: int) -> int:
        """Return an integer for the first tokens of a prompt, or for the whole prompt if it is shorter."""
        end = min(tokens, sequence.prompt_num_tokens)
        return int(self._named(sequence, np.array([end], np.int64))[0]) if end else -1

    def _named(self, sequence: Arrival, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        position, row = (ends - 1) // self.id_tokens, self._row(sequence)
        # A trace may leave out the id of a last part: no other prompt has those tokens.
        named = -2 - ((sequence.request << 32) + ends)
        known = position < len(row)
        ids = row[position[known]].astype(np.int64)
        named[known] = ids * self.id_tokens + (ends[known] - 1) % self.id_tokens
        return named

    def _row(self, sequence: Arrival) -> NDArray[np.uint32]:
        request = sequence.request
        return self._ids[self._offsets[request] : self._offsets[request + 1]]
