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
        #: The request that was asked about last, and its blocks.
        self._asked, self._last = -1, list[int]()

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
        users, holders, bit = self._users[machine], self._holders, 1 << machine
        before = len(users)
        for key in keys:
            using = users.get(key, 0)
            if not using:
                holders[key] = holders.get(key, 0) | bit
            users[key] = using + 1
        self.counts[machine] += len(users) - before

    def closed(self, request: int) -> None:
        """Take an ended prompt from its machine's."""
        machine, keys = self._open.pop(request, (0, []))
        users, holders, bit = self._users[machine], self._holders, 1 << machine
        before = len(users)
        for key in keys:
            using = users[key] - 1
            if using:
                users[key] = using
                continue
            del users[key]
            if holders[key] == bit:
                del holders[key]
            else:
                holders[key] ^= bit
        self.counts[machine] += len(users) - before

    def _keys(self, sequence: Arrival) -> list[int]:
        """Return a prompt's blocks; asked for twice a choice."""
        if self._asked != sequence.request:
            self._asked = sequence.request
            self._last = self._prompts.keys(sequence, self._block, partial=False)
        return self._last


def _less(new: NDArray[np.int64], mask: int, blocks: int) -> None:
    """Take blocks from each machine of a mask."""
    while mask:
        lowest = mask & -mask
        new[lowest.bit_length() - 1] -= blocks
        mask ^= lowest
