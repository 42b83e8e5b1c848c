"""Conversations: each turn's prompt is all that was said before plus a new input (seed 000, 4.1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kvcache_sim.errors import UsageError
from kvcache_sim.values import dataclass
from kvcache_sim.workload.generate.chains import Chains, shared_texts
from kvcache_sim.workload.generate.chunk import UNITS, Chunk, Draws
from kvcache_sim.workload.generate.dialogue import Turns, dialogue, new_inputs, think_gaps
from kvcache_sim.workload.generate.fields import choice, count, number, probability, times, tokens
from kvcache_sim.workload.generate.lengths import Constant, Lengths, Uniform
from kvcache_sim.workload.generate.settings import Workload

PROMPT_STRUCTURES = ("full_history_plus_new_input", "new_input_only")


@dataclass(frozen=True, slots=True)
class Conversational(Workload):
    """Settings: a session goes on past its first turn with ``conversational_probability``.

    It then has ``turns`` turns, a ``think_time`` before each follow-up. ``prompt_structure`` says how rows
    are written: with the whole prompt, or with the new input only, the history left to the reader. A trace
    in memory always holds whole prompts.
    """

    dial: ClassVar[tuple[str, float]] = ("conversational_probability", 1.0)

    conversational_probability: float = probability(0.9)
    turns: Lengths = tokens(Uniform(2, 8))
    think_time: Lengths = times(Constant(10 * 10**9))
    system_prompt_tokens: int = count(0, minimum=0)
    first_input_tokens: Lengths = tokens(Constant(1024))
    new_input_tokens: Lengths = tokens(Constant(128))
    prompt_structure: str = choice("full_history_plus_new_input", PROMPT_STRUCTURES)
    target_hit_ratio: float | None = number(None, 0.0, 1.0, optional=True)

    def __post_init__(self) -> None:
        Workload.__post_init__(self)
        if self.prompt_structure == "new_input_only" and self.system_prompt_tokens:
            raise UsageError(
                "rows with the new input only cannot name a text shared between sessions",
                where="workload.system_prompt_tokens",
                got=str(self.system_prompt_tokens),
                expected="0",
            )

    @property
    def shares(self) -> bool:
        """Whether two units may show the same block."""
        return self.system_prompt_tokens >= self.block_size

    def shared(self, seed: int) -> tuple[Chains, int]:
        """Return the system prompt, the only text that sessions share."""
        del seed
        return shared_texts(np.asarray([self.system_prompt_tokens]), self.block_size)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` sessions, all turns of each."""
        goes_on = draws.stream("conversational").random(UNITS) < self.conversational_probability
        rows = Turns.of(np.where(goes_on, self.turns.draw(draws.stream("turns"), UNITS), 1))
        system = np.zeros(UNITS, np.int64)
        return dialogue(
            rows,
            self.system_prompt_tokens,
            new_inputs(rows, self.first_input_tokens, self.new_input_tokens, draws),
            self.output_tokens.draw(draws.stream("output_tokens"), len(rows)),
            think_gaps(rows, self.think_time, draws),
            shared.grown(system, system + self.system_prompt_tokens // self.block_size),
        )
