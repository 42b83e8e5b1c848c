"""NVIDIA Dynamo's KV router: prefill and decode blocks by its own counts, least cost or softmax."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.rng import stream
from kvcache_sim.serving.router.contract import Look, Needs, RouterView
from kvcache_sim.serving.router.prompt_blocks import PromptBlocks
from kvcache_sim.serving.sequence import Arrival


class ActiveBlocks:
    """Counts the distinct full blocks of the unfinished prompts that were sent to each machine.

    The blocks that a prompt shares with the open prompts of a machine are one run from its start.
    Source: src/sequences of the crate dynamo-kv-router 1.3.1 (output blocks left out, its default).
    Cost: O(blocks + machines that share any) per request.
    """

    def __init__(self, machines: int, prompts: PromptBlocks, block_tokens: int) -> None:
        self._prompts, self._block = prompts, block_tokens
        #: By machine.
        self.counts: NDArray[np.int64] = np.zeros(machines, np.int64)
        #: By machine and block the number of prompts with it; by block its machines, bit m for machine m.
        self._users: list[dict[int, int]] = [{} for _ in range(machines)]
        self._owners: dict[int, int] = {}
        self._open: dict[int, tuple[int, list[int]]] = {}
        #: The last request looked up, and its blocks.
        self._asked, self._last = -1, list[int]()

    def new_blocks(self, sequence: Arrival) -> NDArray[np.int64]:
        """Return by machine the prompt's full blocks that no open prompt there has."""
        keys = self._keys(sequence)
        new = np.full(len(self.counts), len(keys), np.int64)
        mask = self._owners.get(keys[0], 0) if keys else 0
        for depth, key in enumerate(keys):
            still = mask & self._owners.get(key, 0)
            _less(new, mask & ~still, depth)
            mask = still
            if not mask:
                break
        _less(new, mask, len(keys))
        return new

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Add a prompt's blocks to a machine."""
        keys = self._keys(sequence)
        self._open[sequence.request] = machine, keys
        users, owners, bit = self._users[machine], self._owners, 1 << machine
        before = len(users)
        for key in keys:
            using = users.get(key, 0)
            if not using:
                owners[key] = owners.get(key, 0) | bit
            users[key] = using + 1
        self.counts[machine] += len(users) - before

    def closed(self, request: int) -> None:
        """Remove a finished prompt's blocks from its machine."""
        machine, keys = self._open.pop(request, (0, []))
        users, owners, bit = self._users[machine], self._owners, 1 << machine
        before = len(users)
        for key in keys:
            using = users[key] - 1
            if using:
                users[key] = using
                continue
            del users[key]
            if owners[key] == bit:
                del owners[key]
            else:
                owners[key] ^= bit
        self.counts[machine] += len(users) - before

    def _keys(self, sequence: Arrival) -> list[int]:
        """Return a prompt's blocks, cached for the second call of a choice."""
        if self._asked != sequence.request:
            self._asked = sequence.request
            self._last = self._prompts.keys(sequence, self._block, partial=False)
        return self._last


def _less(new: NDArray[np.int64], mask: int, blocks: int) -> None:
    """Subtract blocks from each machine of a mask."""
    while mask:
        lowest = mask & -mask
        new[lowest.bit_length() - 1] -= blocks
        mask ^= lowest


class DynamoKv:
    """The least ``overlap_weight`` × max(0, (A + prompt) / block − credit) + decode blocks, ties at random.

    A: uncached prompt tokens sent there, without a first token yet. Credit: ``overlap_credit`` for each found
    block on the GPU; a block on a lower tier by its part in ``uncredited_blocks``. Decode blocks: the
    distinct full blocks of prompts that are open there, and the blocks of this prompt that are not among
    them. With ``temperature`` T above 0 a machine is drawn with weight exp(−cost / ((largest − smallest) ×
    T)). Draws: the stream ``router``. Of decode machines max(0, decode blocks − credit), where the hand-over
    is decided per request (``handover.decide``), else the decode blocks alone.

    Why: The router counts work itself, so no report is late.
    Example: Weight 1, blocks: 20 to prefill − 8 credited + 10 that decode is 22; 20 + 0 is 20 and wins.
    Source: src/scheduling/selector.rs, config.rs, overlap.rs and src/sequences of the crate dynamo-kv-router
    1.3.1; ``overlap_weight`` is its prefill_load_scale.
    Cost: one lookup on all machines, O(blocks) of bookkeeping.
    """

    needs = Needs(caches=True, sent_blocks=True, keys=("overlap_weight", "overlap_credit", "temperature"))

    def __init__(self, view: RouterView) -> None:
        assert view.prompts is not None
        self._view = view
        self._active = ActiveBlocks(len(view.replicas), view.prompts, view.block_size_tokens)
        view.when_closed.append(self._active.closed)
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the smallest cost, or a machine drawn by cost."""
        chosen = self.ask(sequence)
        self.sent(sequence, chosen)
        return chosen

    def sent(self, sequence: Arrival, machine: int) -> None:
        """Count the blocks of a request that is sent to a machine."""
        self._active.sent(sequence, machine)

    def ask(self, sequence: Arrival) -> int:
        """Return the machine of a request that is not sent there yet."""
        view = self._view
        look = view.look(sequence)
        effective = self._effective(sequence, look)
        extra = (view.settings.overlap_credit - 1) * np.array(look.gpu_blocks)
        chosen = self._pick(self._costs(sequence, effective + extra))
        self._expect(sequence, float(effective[chosen]))
        return chosen

    def passed(self, sequence: Arrival, machine: int) -> None:
        """Count a request that is bound to a machine."""
        self._expect(sequence, float(self._effective(sequence, self._view.look(sequence))[machine]))
        self.sent(sequence, machine)

    def _effective(self, sequence: Arrival, look: Look) -> NDArray[np.float64]:
        found: NDArray[np.float64] = look.found_blocks - np.array(
            self._view.uncredited_blocks(sequence, look.found_blocks)
        )
        return found

    def _expect(self, sequence: Arrival, cached_blocks: float) -> None:
        cached = round(cached_blocks * self._view.block_size_tokens)
        sequence.expected_prefill_tokens = max(sequence.prompt_num_tokens - cached, 0)

    def _costs(self, sequence: Arrival, credit: NDArray[np.float64]) -> NDArray[np.float64]:
        view, block = self._view, self._view.block_size_tokens
        blocks = self._active.counts + self._active.new_blocks(sequence)
        decode = blocks.astype(np.float64)
        if view.decodes:
            return decode if view.promised is None else np.maximum(decode - credit, 0)
        raw = np.array(view.expected_prefill_tokens(), np.float64) + sequence.prompt_num_tokens
        return view.settings.overlap_weight * np.maximum(raw / block - credit, 0) + decode

    def _pick(self, costs: NDArray[np.float64]) -> int:
        temperature, least, most = self._view.settings.temperature, costs.min(), costs.max()
        if temperature == 0 or least == most:
            best = np.flatnonzero(costs == least)
            return int(best[0] if len(best) == 1 else best[self._draw.integers(len(best))])
        weights = np.cumsum(np.exp(-(costs - least) / ((most - least) * temperature)))
        return int(np.searchsorted(weights, self._draw.random() * weights[-1], side="right"))
