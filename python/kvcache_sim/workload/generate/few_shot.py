"""Few-shot prompts: one of a limited set of system prompts or examples, then a query (seed 000, 4.4)."""

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
class FewShot(Workload):
    """Settings: each request draws one prefix of the pool, all alike, and adds its query.

    ``shared_probability`` is the share of requests that use the pool at all; the others are as long but
    share nothing.
    """

    dial: ClassVar[tuple[str, float]] = ("shared_probability", 1.0)

    pool_size: int = count(8, maximum=10**6)
    prefix_tokens: Lengths = tokens(Constant(2048))
    query_tokens: Lengths = tokens(Constant(128))
    shared_probability: float = probability(1.0)
    target_hit_ratio: float | None = number(None, 0.0, 1.0, optional=True)

    def _prefix_tokens(self, seed: int) -> NDArray[np.int64]:
        return self.prefix_tokens.draw(stream(seed, "workload.prefix_tokens"), self.pool_size)

    def shared(self, seed: int) -> tuple[Chains, int]:
        """Return the pool of prefixes."""
        return shared_texts(self._prefix_tokens(seed), self.block_size)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` requests, each with a prefix drawn from the pool."""
        drawn = draws.stream("prefix").integers(0, self.pool_size, UNITS)
        shares = draws.stream("shared").random(UNITS) < self.shared_probability
        prompt, chain, chains = prefixed(
            shared,
            self._prefix_tokens(draws.seed),
            np.where(shares, drawn, UNSHARED),
            self.query_tokens.draw(draws.stream("query_tokens"), UNITS),
            drawn,
            self.block_size,
        )
        return singles(prompt, self.output_tokens.draw(draws.stream("output_tokens"), UNITS), chain, chains)
