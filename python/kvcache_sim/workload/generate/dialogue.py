"""Sessions in which every prompt is the whole history plus a new input."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.values import dataclass
from kvcache_sim.workload.generate.chains import Chains
from kvcache_sim.workload.generate.chunk import Chunk, Draws
from kvcache_sim.workload.generate.lengths import Lengths
from kvcache_sim.workload.trace import NO_REQUEST


@dataclass(frozen=True, slots=True)
class Turns:
    """Rows of sessions laid one after another: row i is turn ``turn[i]`` of session ``session[i]``."""

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
        """Return the sum of a column over a session's rows up to and including each row."""
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
    """Return sessions, one a unit, whose text is the last ``len(rows.first_row)`` of ``chains``.

    The prompt of turn t is the system prompt, inputs 0 … t and answers 0 … t − 1: a leading part of it.
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
