"""Retrieval: prompts of a few documents, drawn by Zipf's law, and a question of their own."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import UsageError
from kvcache_sim.rng import derive_seed, stream
from kvcache_sim.values import dataclass
from kvcache_sim.workload.generate.chains import Chains, shared_texts
from kvcache_sim.workload.generate.chunk import UNITS, Chunk, Draws, singles
from kvcache_sim.workload.generate.fields import choice, count, number, tokens
from kvcache_sim.workload.generate.lengths import Constant, Lengths
from kvcache_sim.workload.generate.settings import Workload

_DOCUMENT_IDS = 2**62  # ids of document blocks lie above all counted ids


@dataclass(frozen=True, slots=True)
class Rag(Workload):
    """Settings: document r of ``documents`` is drawn with weight r^(−``zipf_exponent``), never twice.

    ``document_order: ordered`` puts a prompt's documents in their fixed order, so that prompts with the same
    popular documents share a prefix; ``shuffled`` leaves them as drawn (by relevance to the question).
    """

    dial: ClassVar[tuple[str, float]] = ("zipf_exponent", 3.0)

    documents: int = count(1000, maximum=10**7)
    documents_per_prompt: int = count(4, maximum=64)
    zipf_exponent: float = number(1.0, 0.0, 3.0)
    document_order: str = choice("ordered", ("ordered", "shuffled"))
    document_tokens: Lengths = tokens(Constant(1024))
    question_tokens: Lengths = tokens(Constant(128))
    system_prompt_tokens: int = count(512, minimum=0)
    target_hit_ratio: float | None = number(None, 0.0, 1.0, optional=True)

    def __post_init__(self) -> None:
        Workload.__post_init__(self)
        if self.documents < 4 * self.documents_per_prompt:
            raise UsageError(
                "too few to draw a prompt's documents from",
                where="workload.documents",
                got=str(self.documents),
                expected=f"at least 4 × documents_per_prompt = {4 * self.documents_per_prompt}",
            )

    def shared(self, seed: int) -> tuple[Chains, int]:
        """Return the system prompt; document blocks are named by the path of documents before them."""
        del seed
        return shared_texts(np.asarray([self.system_prompt_tokens]), self.block_size)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` questions, each after its documents."""
        picks = self._draw_documents(draws.stream("documents"))
        if self.document_order == "ordered":
            picks.sort(axis=1)
        lengths = self.document_tokens.draw(stream(draws.seed, "workload.document_tokens"), self.documents)
        ends = self.system_prompt_tokens + np.cumsum(lengths[picks], axis=1)
        chains = shared
        parent = np.zeros(UNITS, np.int64)
        fork = np.full(UNITS, self.system_prompt_tokens // self.block_size)
        path = np.full(UNITS, derive_seed(draws.seed, "workload.document_path"), np.uint64)
        for level in range(self.documents_per_prompt):
            path = _mixed(path ^ (picks[:, level].astype(np.uint64) + np.uint64(1)))
            base = (path >> np.uint64(3)).astype(np.int64) + _DOCUMENT_IDS
            chains = chains.grown(parent, fork, base)
            parent = len(chains) - UNITS + np.arange(UNITS)
            fork = ends[:, level] // self.block_size
        question = self.question_tokens.draw(draws.stream("question_tokens"), UNITS)
        return singles(
            ends[:, -1] + question,
            self.output_tokens.draw(draws.stream("output_tokens"), UNITS),
            len(chains) + np.arange(UNITS),
            chains.grown(parent, fork),
        )

    def _draw_documents(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return ``UNITS`` rows of different documents, each drawn from those not drawn before it."""
        weight = np.arange(1, self.documents + 1) ** -self.zipf_exponent
        upto = np.cumsum(weight) / weight.sum()
        picks = np.empty((UNITS, self.documents_per_prompt), np.int64)
        for level in range(self.documents_per_prompt):
            again = np.arange(UNITS)
            while len(again):
                drawn = np.searchsorted(upto, rng.random(len(again)), side="right")
                picks[again, level] = np.minimum(drawn, self.documents - 1)
                repeats = (picks[again, :level] == picks[again, level, None]).any(axis=1)
                again = again[repeats]
        return picks


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's output function of each value (Steele, Lea and Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
