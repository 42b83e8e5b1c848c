"""Workloads of single requests: diverse, few-shot, repetitive prompts and retrieval (seed 000, 4.2–4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import derive_seed, stream
from kvcache_sim.workload.generate.chains import ROOT, Chains
from kvcache_sim.workload.generate.chunk import UNITS, Chunk, Draws, singles
from kvcache_sim.workload.generate.lengths import Constant, Lengths
from kvcache_sim.workload.generate.settings import Workload, choice, count, number, probability, tokens


@dataclass(frozen=True, slots=True)
class Diverse(Workload):
    """Unrelated prompts, given by their lengths."""

    prompt_tokens: Lengths = tokens(1024)

    @property
    def shares(self) -> bool:
        """True if two units may contain the same block."""
        return False

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` unrelated requests."""
        roots = np.zeros(UNITS, np.int64)
        return singles(
            self.prompt_tokens.draw(draws.stream("prompt_tokens"), UNITS),
            self.output_tokens.draw(draws.stream("output_tokens"), UNITS),
            np.arange(UNITS),
            shared.grown(roots - 1, roots),
        )


@dataclass(frozen=True, slots=True)
class FewShot(Workload):
    """Requests that each draw one prefix of a pool, uniformly, and add a query.

    ``shared_probability`` is the share of requests that use the pool; the others have the same lengths but
    share nothing.
    """

    dial: ClassVar[tuple[str, float]] = ("shared_probability", 1.0)

    pool_size: int = count(8, maximum=10**6)
    prefix_tokens: Lengths = tokens(Constant(2048))
    query_tokens: Lengths = tokens(Constant(128))
    shared_probability: float = probability(1.0)
    target_hit_ratio: float | None = number(None, 0.0, 1.0, optional=True)

    def shared_tokens(self, seed: int) -> NDArray[np.int64]:
        """Return the lengths of the pool of prefixes."""
        return self.prefix_tokens.draw(stream(seed, "workload.prefix_tokens"), self.pool_size)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` requests, each with a prefix drawn from the pool."""
        drawn = draws.stream("prefix").integers(0, self.pool_size, UNITS)
        return _prefixed(
            self, shared, draws, drawn, self.query_tokens.draw(draws.stream("query_tokens"), UNITS)
        )


@dataclass(frozen=True, slots=True)
class Repetitive(Workload):
    """Request i uses instruction i mod ``instructions``, followed by a variable text.

    ``shared_probability`` is the share of requests that begin with an instruction; the others have the same
    lengths but share nothing.
    """

    dial: ClassVar[tuple[str, float]] = ("shared_probability", 1.0)

    instructions: int = count(4, maximum=10**6)
    instruction_tokens: Lengths = tokens(Constant(2048))
    variable_tokens: Lengths = tokens(Constant(256))
    shared_probability: float = probability(1.0)
    target_hit_ratio: float | None = number(None, 0.0, 1.0, optional=True)

    def shared_tokens(self, seed: int) -> NDArray[np.int64]:
        """Return the lengths of the instructions."""
        return self.instruction_tokens.draw(stream(seed, "workload.instruction_tokens"), self.instructions)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` requests, with the instructions in turn."""
        turn = (draws.index * UNITS + np.arange(UNITS)) % self.instructions
        variable = self.variable_tokens.draw(draws.stream("variable_tokens"), UNITS)
        return _prefixed(self, shared, draws, turn, variable)


def _prefixed(
    settings: FewShot | Repetitive,
    pool: Chains,
    draws: Draws,
    pick: NDArray[np.int64],
    own_tokens: NDArray[np.int64],
) -> Chunk:
    """Return a chunk of prompts, each with text ``pick`` of the pool and a text of its own.

    A prompt that shares nothing has the same length as with the pool's text.
    """
    shares = draws.stream("shared").random(UNITS) < settings.shared_probability
    length = settings.shared_tokens(draws.seed)[pick]
    parent = np.where(shares, pick, ROOT)
    chains = pool.grown(parent, np.where(shares, length // settings.block_size, 0))
    outputs = settings.output_tokens.draw(draws.stream("output_tokens"), UNITS)
    return singles(length + own_tokens, outputs, len(pool) + np.arange(UNITS), chains)


_DOCUMENT_IDS = 2**62  # ids of document blocks are above all other ids


@dataclass(frozen=True, slots=True)
class Rag(Workload):
    """Document r of ``documents`` is drawn with weight r^(−``zipf_exponent``), without replacement.

    ``document_order: ordered`` sorts a prompt's documents, so that prompts with the same popular documents
    share a prefix; ``shuffled`` leaves them in drawing order (by relevance to the question).
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
        """Return ``UNITS`` rows of different documents, each drawn without replacement."""
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
