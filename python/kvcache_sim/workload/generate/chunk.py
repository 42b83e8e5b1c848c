"""A chunk of a workload: the requests of a fixed number of units, without times and ids."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.rng import stream
from kvcache_sim.base.values import Value
from kvcache_sim.workload.generate.chains import Chains
from kvcache_sim.workload.trace import NO_REQUEST, NO_SESSION

#: Units (sessions with their sub-agents, or single requests) per chunk. Part of the meaning of a seed: rows
#: depend on it, but not on the number of chunks generated at once.
UNITS = 1024


class Draws(Value):
    """The named streams of one chunk of one workload."""

    seed: int
    index: int

    def stream(self, name: str) -> np.random.Generator:
        """Return the stream ``workload.{name}.{chunk}``; each call returns a new one in its initial state."""
        return stream(self.seed, f"workload.{name}.{self.index}")


class Chunk(Value):
    """Requests in columns, those of a unit together and in the order of ``offset_ns``.

    ``unit`` and ``session`` count from 0 within the chunk (NO_SESSION without). ``offset_ns`` is the time
    since the unit's start in open loop. ``gap_ns`` is the time after the awaited request in closed loop: row
    ``after`` of this chunk, or NO_REQUEST for the previous turn of its session. ``history_tokens`` of the
    prompt repeat earlier turns. The prompt is a prefix of text ``chain`` of ``chains``.
    """

    unit: NDArray[np.int64]
    session: NDArray[np.int64]
    turn: NDArray[np.int64]
    offset_ns: NDArray[np.int64]
    gap_ns: NDArray[np.int64]
    after: NDArray[np.int64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    history_tokens: NDArray[np.int64]
    chain: NDArray[np.int64]
    chains: Chains

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.unit)

    def take(self, rows: NDArray[np.int64]) -> Chunk:
        """Return some rows in the given order; rows that others wait for must be included."""
        position = np.full(len(self), NO_REQUEST)
        position[rows] = np.arange(len(rows))
        after = self.after[rows]
        columns = {name: getattr(self, name)[rows] for name in Chunk.__struct_fields__ if name != "chains"}
        columns["after"] = np.where(after == NO_REQUEST, NO_REQUEST, position[after])
        return Chunk(**columns, chains=self.chains)


def singles(
    input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    chain: NDArray[np.int64],
    chains: Chains,
) -> Chunk:
    """Return a chunk whose units are single requests without a session."""
    zeros = np.zeros(len(input_tokens), np.int64)
    return Chunk(
        unit=np.arange(len(input_tokens)),
        session=zeros + NO_SESSION,
        turn=zeros,
        offset_ns=zeros,
        gap_ns=zeros,
        after=zeros + NO_REQUEST,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        history_tokens=zeros,
        chain=chain,
        chains=chains,
    )
