"""Workloads of sessions: every prompt is the whole history plus a new input (seed 000, 4.1 and 4.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.workload.generate.chains import Chains
from kvcache_sim.workload.generate.chunk import UNITS, Chunk, Draws
from kvcache_sim.workload.generate.lengths import Constant, Lengths, Lognormal, Uniform
from kvcache_sim.workload.generate.settings import Workload, choice, count, number, probability, times, tokens
from kvcache_sim.workload.trace import NO_REQUEST


class Turns(Value):
    """Rows of concatenated sessions: row i is turn ``turn[i]`` of session ``session[i]``."""

    session: NDArray[np.int64]
    turn: NDArray[np.int64]
    first_row: NDArray[np.int64]  # of each session

    @classmethod
    def of(cls, turns: NDArray[np.int64]) -> Turns:
        """Return the rows of sessions with these numbers of turns."""
        ends = np.cumsum(turns)
        first = ends - turns
        session = np.repeat(np.arange(len(turns)), turns)
        return cls(session, np.arange(int(turns.sum())) - first[session], first)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.session)

    def running_sum(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the running sum of a column over a session's rows, each row included."""
        total = np.cumsum(values)
        before = total[self.first_row] - values[self.first_row]
        return total - before[self.session]

    def sum_before(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of a column over a session's earlier rows."""
        return self.running_sum(values) - values


def new_inputs(rows: Turns, first: Lengths, later: Lengths, draws: Draws) -> NDArray[np.int64]:
    """Return the new input of each turn: ``first`` at turn 0, ``later`` after it."""
    drawn = later.draw(draws.stream("new_input_tokens"), len(rows))
    drawn[rows.first_row] = first.draw(draws.stream("first_input_tokens"), len(rows.first_row))
    return drawn


def think_gaps(rows: Turns, think: Lengths, draws: Draws) -> NDArray[np.int64]:
    """Return the time in ns before each turn: 0 before the first."""
    gaps = think.draw(draws.stream("think_time"), len(rows))
    gaps[rows.first_row] = 0
    return gaps


def dialogue(
    rows: Turns,
    system_prompt_tokens: int,
    new_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    gap_ns: NDArray[np.int64],
    chains: Chains,
) -> Chunk:
    """Return sessions, one per unit, whose texts are the last ``len(rows.first_row)`` of ``chains``.

    The prompt of turn t is the system prompt, inputs 0 … t and answers 0 … t − 1: a prefix of its text.
    """
    history = rows.sum_before(new_tokens + output_tokens)
    history += np.where(rows.turn > 0, system_prompt_tokens, 0)
    return Chunk(
        unit=rows.session,
        session=rows.session,
        turn=rows.turn,
        offset_ns=rows.running_sum(gap_ns),
        gap_ns=gap_ns,
        after=np.full(len(rows), NO_REQUEST),
        input_tokens=history + new_tokens + np.where(rows.turn > 0, 0, system_prompt_tokens),
        output_tokens=output_tokens,
        history_tokens=history,
        chain=len(chains) - len(rows.first_row) + rows.session,
        chains=chains,
    )


PROMPT_STRUCTURES = ("full_history_plus_new_input", "new_input_only")


@dataclass(frozen=True, slots=True)
class Conversational(Workload):
    """Conversations: a session continues after its first turn with ``conversational_probability``.

    It then has ``turns`` turns, with a ``think_time`` before each follow-up. ``prompt_structure`` selects the
    written form: the whole prompt, or only the new input, with the history left to the reader. A trace in
    memory always has whole prompts.
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
        """True if two units may contain the same block."""
        return self.system_prompt_tokens >= self.block_size

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` sessions, all turns of each."""
        continues = draws.stream("conversational").random(UNITS) < self.conversational_probability
        rows = Turns.of(np.where(continues, self.turns.draw(draws.stream("turns"), UNITS), 1))
        system = np.zeros(UNITS, np.int64)
        return dialogue(
            rows,
            self.system_prompt_tokens,
            new_inputs(rows, self.first_input_tokens, self.new_input_tokens, draws),
            self.output_tokens.draw(draws.stream("output_tokens"), len(rows)),
            think_gaps(rows, self.think_time, draws),
            shared.grown(system, system + self.system_prompt_tokens // self.block_size),
        )


@dataclass(frozen=True, slots=True)
class Agentic(Workload):
    """Agents: a turn ends in a tool call; its result arrives ``think_time`` later, as new input.

    With ``subagent_probability`` a turn also starts a sub-agent: a separate session, concurrent with its
    parent. Its first prompt is the parent's prompt and answer plus ``subagent_input_tokens``.
    """

    turns: Lengths = tokens(Uniform(4, 24))
    think_time: Lengths = times(Lognormal(2 * 10**9, 1.0, 0, 600 * 10**9))
    system_prompt_tokens: int = count(8192, minimum=0)
    first_input_tokens: Lengths = tokens(Constant(512))
    new_input_tokens: Lengths = tokens(Lognormal(600, 1.0, 1, 16384))
    subagent_probability: float = probability(0.05)
    subagent_turns: Lengths = tokens(Uniform(2, 8))
    subagent_input_tokens: Lengths = tokens(Constant(256))

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
        return _merged(agents, self._subagents(agents, np.flatnonzero(spawns), draws))

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


def _merged(agents: Chunk, subagents: Chunk) -> Chunk:
    """Return the rows of both, unit by unit in time order, a parent's turn before its sub-agent."""

    def both(name: str) -> NDArray[np.int64]:
        column: NDArray[np.int64] = np.concatenate((getattr(agents, name), getattr(subagents, name)))
        return column

    columns = [name for name in Chunk.__struct_fields__ if name != "chains"]
    together = Chunk(chains=subagents.chains, **{name: both(name) for name in columns})
    return together.take(np.lexsort((together.offset_ns, together.unit)))


@dataclass(frozen=True, slots=True)
class Overflow(Workload):
    """Conversations with prompts limited to ``window_tokens``, or to ``session_kv_tokens`` if that is less.

    ``on_overflow`` decides about a longer prompt: ``slide`` keeps the first ``kept_head_tokens`` and the
    newest tokens up to the limit; ``stop`` ends the conversation before it; ``summarise`` replaces all
    history after the kept head with a new text of ``summary_tokens``.
    """

    window_tokens: int = count(8192)
    session_kv_tokens: int = count(0, minimum=0)  # 0: no separate limit
    on_overflow: str = choice("slide", ("slide", "stop", "summarise"))
    kept_head_tokens: int = count(0, minimum=0)
    summary_tokens: int = count(512)
    turns: Lengths = tokens(Constant(16))
    think_time: Lengths = times(Constant(10 * 10**9))
    first_input_tokens: Lengths = tokens(Constant(1024))
    new_input_tokens: Lengths = tokens(Constant(512))

    def __post_init__(self) -> None:
        Workload.__post_init__(self)
        if self.window_tokens < self.block_size:
            raise UsageError(
                "smaller than one block",
                where="workload.window_tokens",
                got=str(self.window_tokens),
                expected=f"at least block_size ({self.block_size})",
            )
        if self.session_kv_tokens >= self.window_tokens:
            raise UsageError(
                "has no effect: not below the window",
                where="workload.session_kv_tokens",
                got=str(self.session_kv_tokens),
            )
        rest = self.summary_tokens if self.on_overflow == "summarise" else 0
        if self.kept_head_tokens + rest >= self.limit_tokens:
            raise UsageError(
                "the kept head leaves no tokens for new input",
                where="workload.kept_head_tokens",
                got=str(self.kept_head_tokens),
                expected=f"less than {self.limit_tokens - rest}",
            )

    @property
    def limit_tokens(self) -> int:
        """The longest prompt."""
        return self.session_kv_tokens or self.window_tokens

    @property
    def shares(self) -> bool:
        """True if two units may contain the same block."""
        return False

    def chunk(self, shared: Chains, draws: Draws) -> Chunk:
        """Return ``UNITS`` sessions, with each turn limited to the window."""
        rows = Turns.of(self.turns.draw(draws.stream("turns"), UNITS))
        roots = np.zeros(UNITS, np.int64)
        new_tokens = new_inputs(rows, self.first_input_tokens, self.new_input_tokens, draws)
        whole = dialogue(
            rows,
            0,
            new_tokens,
            self.output_tokens.draw(draws.stream("output_tokens"), len(rows)),
            think_gaps(rows, self.think_time, draws),
            shared.grown(roots - 1, roots),
        )
        return ON_OVERFLOW[self.on_overflow](self, rows, whole)


def _forked(settings: Overflow, whole: Chunk) -> Chains:
    """Return the sessions' texts, then one for each row that shares only the kept head with its session."""
    fork = np.full(len(whole), settings.kept_head_tokens // settings.block_size)
    return whole.chains.grown(whole.chain, fork)


def _slide(settings: Overflow, rows: Turns, whole: Chunk) -> Chunk:
    limit, head = settings.limit_tokens, settings.kept_head_tokens
    over = whole.input_tokens > limit
    kept = np.maximum(limit - (whole.input_tokens - whole.history_tokens), head)
    return replace(
        whole,
        input_tokens=np.minimum(whole.input_tokens, limit),
        history_tokens=np.where(over & (rows.turn > 0), kept, whole.history_tokens),
        chain=np.where(over, len(whole.chains) + np.arange(len(whole)), whole.chain),
        chains=_forked(settings, whole),
    )


def _stop(settings: Overflow, rows: Turns, whole: Chunk) -> Chunk:
    del rows
    return whole.take(np.flatnonzero(whole.input_tokens <= settings.limit_tokens))


def _summarise(settings: Overflow, rows: Turns, whole: Chunk) -> Chunk:
    limit, head = settings.limit_tokens, settings.kept_head_tokens
    new_tokens = whole.input_tokens - whole.history_tokens
    prompt, history, chain = whole.input_tokens.copy(), whole.history_tokens.copy(), whole.chain.copy()
    for turn in range(int(rows.turn.max()) + 1):
        here = np.flatnonzero(rows.turn == turn)
        if turn:
            before = here - 1
            history[here] = prompt[before] + whole.output_tokens[before]
            prompt[here] = history[here] + new_tokens[here]
            chain[here] = chain[before]
        over = here[prompt[here] > limit]
        history[over] = head if turn else 0
        prompt[over] = np.minimum(head + settings.summary_tokens + new_tokens[over], limit)
        chain[over] = len(whole.chains) + over
    return replace(
        whole, input_tokens=prompt, history_tokens=history, chain=chain, chains=_forked(settings, whole)
    )


#: Handling of a prompt over the limit.
ON_OVERFLOW: dict[str, Callable[[Overflow, Turns, Chunk], Chunk]] = {
    "slide": _slide,
    "stop": _stop,
    "summarise": _summarise,
}
