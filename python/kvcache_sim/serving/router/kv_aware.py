"""KV-aware: a machine that has enough of the prompt, as in vLLM's production stack (``kvaware``)."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.sent_lately import SentLately
from kvcache_sim.serving.sequence import Arrival


class KvAware:
    """The first machine that has any of the prompt, if all but ``kv_aware_threshold`` tokens are found there.

    Otherwise the session's machine, or the one sent fewest requests lately. Load is never looked at.

    Source: ``KvawareRouter`` of src/vllm_router/routers/routing_logic.py, vllm-project/production-stack at
    a6c01db0. There the first machine is the first of LMCache's reply, whose order is a hash map's: here it is
    the lowest number.
    Cost: one look at all machines.
    """

    needs = Needs(caches=True, clock=True, keys=("kv_aware_threshold",))

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._other = SentLately(view)

    def choose(self, sequence: Arrival) -> int:
        """Return the machine that has it, or another."""
        view, prompt = self._view, sequence.prompt_num_tokens
        found = view.look(sequence).found_blocks
        first = next((machine for machine, blocks in enumerate(found) if blocks), None)
        least = max(prompt - view.settings.kv_aware_threshold_tokens, 0)
        if first is None or found[first] * view.block_size_tokens < least:
            first = self._other.choose(sequence)
        self._other.sent(first)
        return first
