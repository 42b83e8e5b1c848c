"""Prompts are admitted, answers are not: for workloads whose answers no later prompt repeats."""

from __future__ import annotations

from kvcache_sim.cache.admission.policy import Finished


class AdmitPrompt:
    """Keeps the blocks that hold prompt tokens only."""

    def kept_blocks(self, finished: Finished) -> int:
        """Return the whole blocks of the prompt."""
        return min(finished.prompt_tokens // finished.block_size_tokens, finished.blocks)
