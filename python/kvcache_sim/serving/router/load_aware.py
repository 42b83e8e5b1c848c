"""Load-aware: cached share of the prompt against load, as in vLLM's production stack (``loadaware``)."""

from __future__ import annotations

from kvcache_sim.serving.router.contract import Needs, RouterView
from kvcache_sim.serving.router.sent_lately import SentLately
from kvcache_sim.serving.sequence import Arrival


class LoadAware:
    """The greatest share of the prompt found there − ``load_weight`` × (load − mean) / max(1, mean load).

    Load is requests not finished; the first of equals. Where no machine has any of the prompt: the session's
    machine, or the one sent fewest requests lately.

    Source: the ``loadaware`` routing of pull request 1035 of vllm-project/production-stack. Ties go there to
    the first URL in the order of letters, here to the lowest number.
    Cost: one look at all machines.
    """

    needs = Needs(caches=True, clock=True, keys=("load_weight",))

    def __init__(self, view: RouterView) -> None:
        self._view = view
        self._other = SentLately(view)

    def choose(self, sequence: Arrival) -> int:
        """Return the machine of the greatest score."""
        view, prompt = self._view, max(sequence.prompt_num_tokens, 1)
        found = view.look(sequence).found_blocks
        if any(found):
            loads, weight, block = view.requests(), view.settings.load_weight, view.block_size_tokens
            mean = sum(loads) / len(loads)
            scores = [
                min(blocks * block, prompt) / prompt - weight * (load - mean) / max(1.0, mean)
                for blocks, load in zip(found, loads, strict=True)
            ]
            chosen = scores.index(max(scores))
        else:
            chosen = self._other.choose(sequence)
        self._other.sent(chosen)
        return chosen
