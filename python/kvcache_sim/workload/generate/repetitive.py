"""Repetitive tasks: a few long fixed instructions, each before many short texts (seed 000, 4.2)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.rng import stream
from kvcache_sim.values import dataclass
from kvcache_sim.workload.generate.chains import Chains, shared_texts
from kvcache_sim.workload.generate.chunk import UNITS, Chunk, Draws, singles
from kvcache_sim.workload.generate.fields import count, number, probability, tokens
from kvcache_sim.workload.generate.lengths import Constant, Lengths
from kvcache_sim.workload.generate.pooled import UNSHARED, prefixed
from kvcache_sim.workload.generate.settings import Workload


@dataclass(frozen=True, slots=True)
class Repetitive(Workload):
    """Settings: request i works on instruction i mod ``instructions``, followed by a variable text.

    ``shared_probability`` is the share of requests that begin with an instruction at all; the others are as
    long but share nothing.
    """

    dial: ClassVar[tuple[str, float]] = ("shared_probability", 1.0)

    instructions: int = count(4, maximum=10**6)
    instruction_tokens: Lengths = tokens(Constant(2048))
    variable_tokens: Lengths = tokens(Constant(256))
    shared_probability: float = probability(1.0)
    target_hit_ratio: float | None = number(None, 0.0, 1.0, optional=True)

    def _instruction_tokens(self, seed: int) -> NDArray[np.int64]:
        return self.instruction_tokens.draw(stream(seed, "workload.instruction_tokens"), self.instructions)

    def shared(self, seed: int) -> tuple[Chains, int]:
        """Return the instructions."""
        return shared_texts(self._instruction_tokens(seed), self.block_size)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` requests, the instructions taken in turn."""
        turn = (draws.index * UNITS + np.arange(UNITS)) % self.instructions
        shares = draws.stream("shared").random(UNITS) < self.shared_probability
        prompt, chain, chains = prefixed(
            shared,
            self._instruction_tokens(draws.seed),
            np.where(shares, turn, UNSHARED),
            self.variable_tokens.draw(draws.stream("variable_tokens"), UNITS),
            turn,
            self.block_size,
        )
        return singles(prompt, self.output_tokens.draw(draws.stream("output_tokens"), UNITS), chain, chains)
