"""A router's own books of open prompts: their distinct full blocks, by machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.serving.router.prompt_blocks import PromptBlocks
from kvcache_sim.serving.sequence import Arrival


class ActiveBlocks:
    """Counts the distinct full blocks of the prompts that were sent to each machine and have not ended.

    Open prompts have leading blocks: what a prompt shares with those of a machine is one stretch from
    its start. Source: src/sequences of the crate dynamo-kv-router 1.3.1 (output blocks left out, its
    default). Cost: O(blocks + machines that share any) a request.
    """

    def __init__(self, machines: int, prompts: PromptBlocks, block_tokens: int) -> None:
        self._prompts, self._block = prompts, block_tokens
        #: By machine.
        self.counts: NDArray[np.int64] = np.zeros(machines, np.int64)
        #: By machine and block the prompts that have it; by block who has it, bit m for machine m.
        self._users: list[dict[int, int]] = [{} for _ in range(machines)]
        self._holders: dict[int, int] = {}
        self._open: dict[int, tuple[int, list[int]]] = {}

    def new_blocks(self, sequence: Arrival) -> NDArray[np.int64]:
        """Return by machine the prompt's full blocks that no open prompt there has."""
        keys = self._keys(sequence)
        new = np.full(len(self.counts), len(keys), np.int64)
        mask = self._holders.get(keys[0], 0) if keys else 0
        for depth, key in enumerate(keys):
            still = mask & self._holders.get(key, 0)
            _less(new, mask & ~still, depth)
            mask = still
            if not mask:
                break
        _less(new, mask, len(keys))
        return new

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Add a prompt to a machine's."""
        keys = self._keys(sequence)
        self._open[sequence.request] = machine, keys
        users, bit = self._users[machine], 1 << machine
        for key in keys:
            if key not in users:
                self.counts[machine] += 1
                self._holders[key] = self._holders.get(key, 0) | bit
            users[key] = users.get(key, 0) + 1

    def closed(self, request: int) -> None:
        """Take an ended prompt from its machine's."""
        machine, keys = self._open.pop(request, (0, []))
        users, bit = self._users[machine], 1 << machine
        for key in keys:
            users[key] -= 1
            if not users[key]:
                del users[key]
                self.counts[machine] -= 1
                self._holders[key] &= ~bit
                if not self._holders[key]:
                    del self._holders[key]

    def _keys(self, sequence: Arrival) -> list[int]:
        return self._prompts.keys(sequence, self._block, partial=False)


def _less(new: NDArray[np.int64], mask: int, blocks: int) -> None:
    """Take blocks from each machine of a mask."""
    while mask:
        lowest = mask & -mask
        new[lowest.bit_length() - 1] -= blocks
        mask ^= lowest
