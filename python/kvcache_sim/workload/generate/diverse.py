"""Diverse prompts: every prompt is a text of its own, so nothing can be reused (seed 000, 4.3)."""

from __future__ import annotations

import numpy as np

from kvcache_sim.values import dataclass
from kvcache_sim.workload.generate.chains import Chains, shared_texts
from kvcache_sim.workload.generate.chunk import UNITS, Chunk, Draws, singles
from kvcache_sim.workload.generate.fields import tokens
from kvcache_sim.workload.generate.lengths import Lengths
from kvcache_sim.workload.generate.settings import Workload


@dataclass(frozen=True, slots=True)
class Diverse(Workload):
    """Settings: the lengths of the prompts."""

    prompt_tokens: Lengths = tokens(1024)

    @property
    def shares(self) -> bool:
        """Whether two units may show the same block."""
        return False

    def shared(self, seed: int) -> tuple[Chains, int]:
        """Return no shared text."""
        del seed
        return shared_texts(np.zeros(0, np.int64), self.block_size)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` unrelated requests."""
        roots = np.zeros(UNITS, np.int64)
        return singles(
            self.prompt_tokens.draw(draws.stream("prompt_tokens"), UNITS),
            self.output_tokens.draw(draws.stream("output_tokens"), UNITS),
            np.arange(UNITS),
            shared.grown(roots - 1, roots),
        )
