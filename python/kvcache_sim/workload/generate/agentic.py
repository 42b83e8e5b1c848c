"""Agents: tool calls with gaps between turns, and sub-agents that fork the parent's context."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.values import dataclass
from kvcache_sim.workload.generate.chains import Chains, shared_texts
from kvcache_sim.workload.generate.chunk import UNITS, Chunk, Draws
from kvcache_sim.workload.generate.dialogue import Turns, dialogue, new_inputs, think_gaps
from kvcache_sim.workload.generate.fields import count, probability, times, tokens
from kvcache_sim.workload.generate.lengths import Constant, Lengths, Lognormal, Uniform
from kvcache_sim.workload.generate.settings import Workload


@dataclass(frozen=True, slots=True)
class Agentic(Workload):
    """Settings: an agent's turn ends in a tool call; its result comes ``think_time`` later, as new input.

    With ``subagent_probability`` a turn also starts a sub-agent: a session of its own whose first prompt is
    the parent's prompt and answer plus ``subagent_input_tokens``, and which runs beside the parent.
    """

    turns: Lengths = tokens(Uniform(4, 24))
    think_time: Lengths = times(Lognormal(2 * 10**9, 1.0, 0, 600 * 10**9))
    system_prompt_tokens: int = count(8192, minimum=0)
    first_input_tokens: Lengths = tokens(Constant(512))
    new_input_tokens: Lengths = tokens(Lognormal(600, 1.0, 1, 16384))
    subagent_probability: float = probability(0.05)
    subagent_turns: Lengths = tokens(Uniform(2, 8))
    subagent_input_tokens: Lengths = tokens(Constant(256))

    def shared(self, seed: int) -> tuple[Chains, int]:
        """Return the system prompt with its tool definitions."""
        del seed
        return shared_texts(np.asarray([self.system_prompt_tokens]), self.block_size)

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` agents with their sub-agents."""
        rows = Turns.of(self.turns.draw(draws.stream("turns"), UNITS))
        system = np.zeros(UNITS, np.int64)
        agents = dialogue(
            rows,
            self.system_prompt_tokens,
            new_inputs(rows, self.first_input_tokens, self.new_input_tokens, draws),
            self.output_tokens.draw(draws.stream("output_tokens"), len(rows)),
            think_gaps(rows, self.think_time, draws),
            shared.grown(system, system + self.system_prompt_tokens // self.block_size),
        )
        spawns = draws.stream("subagent").random(len(rows)) < self.subagent_probability
        return _beside(agents, self._subagents(agents, np.flatnonzero(spawns), draws))

    def _subagents(self, agents: Chunk, parents: NDArray[np.int64], draws: Draws) -> Chunk:
        rows = Turns.of(self.subagent_turns.draw(draws.stream("subagent_turns"), len(parents)))
        new_tokens = self.new_input_tokens.draw(draws.stream("subagent_new_input_tokens"), len(rows))
        first = self.subagent_input_tokens.draw(draws.stream("subagent_input_tokens"), len(parents))
        new_tokens[rows.first_row] = first
        output = self.output_tokens.draw(draws.stream("subagent_output_tokens"), len(rows))
        gap_ns = self.think_time.draw(draws.stream("subagent_think_time"), len(rows))
        forked = agents.input_tokens[parents] + agents.output_tokens[parents]
        history = forked[rows.session] + rows.sum_before(new_tokens + output)
        after = np.full(len(rows), -1)
        after[rows.first_row] = parents
        return Chunk(
            unit=agents.unit[parents][rows.session],
            session=UNITS + rows.session,
            turn=rows.turn,
            offset_ns=agents.offset_ns[parents][rows.session] + rows.running_sum(gap_ns),
            gap_ns=gap_ns,
            after=after,
            input_tokens=history + new_tokens,
            output_tokens=output,
            history_tokens=np.where(rows.turn > 0, history, 0),
            chain=len(agents.chains) + rows.session,
            chains=agents.chains.grown(agents.chain[parents], forked // self.block_size),
        )


def _beside(agents: Chunk, subagents: Chunk) -> Chunk:
    """Return the rows of both, unit by unit in time order, a parent's turn before what it starts."""

    def both(name: str) -> NDArray[np.int64]:
        column: NDArray[np.int64] = np.concatenate((getattr(agents, name), getattr(subagents, name)))
        return column

    columns = [name for name in Chunk.__slots__ if name != "chains"]
    together = Chunk(chains=subagents.chains, **{name: both(name) for name in columns})
    return together.take(np.lexsort((together.offset_ns, together.unit)))
