"""NVIDIA Dynamo's KV router: prefill and decode blocks by its own books, least cost or softmax."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.rng import stream
from kvcache_sim.serving.router.active_blocks import ActiveBlocks
from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.sequence import Arrival


class DynamoKv:
    """The least ``overlap_weight`` × max(0, (A + prompt) / block − credit) + decode blocks, ties at random.

    A: prompt tokens sent there, not found there, without a first token yet. Credit: found blocks, one on a
    lower tier by the part in ``uncredited_blocks``. Decode blocks: the distinct full blocks of prompts that
    are open there, and those of this prompt that are not among them. With ``temperature`` T above 0 a machine
    is drawn with weight exp(−cost / ((largest − smallest) × T)). Draws: the stream ``router``.

    Source: src/scheduling/selector.rs, config.rs, overlap.rs and src/sequences of the crate dynamo-kv-router
    1.3.1; ``overlap_weight`` is its prefill_load_scale.
    Cost: a look at all machines, O(blocks) of book-keeping.
    """

    needs = Needs(caches=True, sent_blocks=True, keys=("overlap_weight", "temperature"))

    def __init__(self, view: RouterView) -> None:
        assert view.prompts is not None
        self._view = view
        self._active = ActiveBlocks(len(view.replicas), view.prompts, view.block_size_tokens)
        view.when_closed.append(self._active.closed)
        self._draw = stream(view.seed, "router")

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the smallest cost, or one drawn by cost."""
        view = self._view
        found = np.array(view.look(sequence).found_blocks, np.float64)
        credit = found - view.uncredited_blocks(sequence, found.astype(int).tolist())
        costs = self._costs(sequence, credit)
        chosen = self._pick(costs)
        cached = round(float(credit[chosen]) * view.block_size_tokens)
        sequence.expected_prefill_tokens = max(sequence.prompt_num_tokens - cached, 0)
        self._active.sent(sequence, chosen)
        return chosen

    def _costs(self, sequence: Arrival, credit: NDArray[np.float64]) -> NDArray[np.float64]:
        view, block = self._view, self._view.block_size_tokens
        raw = np.array(view.expected_prefill_tokens(), np.float64) + sequence.prompt_num_tokens
        decode = self._active.counts + self._active.new_blocks(sequence)
        return view.settings.overlap_weight * np.maximum(raw / block - credit, 0) + decode

    def _pick(self, costs: NDArray[np.float64]) -> int:
        temperature, least, most = self._view.settings.temperature, costs.min(), costs.max()
        if temperature == 0 or least == most:
            best = np.flatnonzero(costs == least)
            return int(best[0] if len(best) == 1 else best[self._draw.integers(len(best))])
        weights = np.cumsum(np.exp(-(costs - least) / ((most - least) * temperature)))
        return int(np.searchsorted(weights, self._draw.random() * weights[-1], side="right"))
