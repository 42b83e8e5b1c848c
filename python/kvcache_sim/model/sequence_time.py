"""A step-time model with the host's time for each sequence of a step on top."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcache_sim.model.step_time import StepBatch, StepTime, StepTimeTable

_FS_PER_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class WithSequenceTime:
    """A model whose steps take ``sequence_ns`` more for each sequence that decodes in them.

    Below 0 it takes away: never more than the model has of its own, or more sequences would be faster.
    """

    base: StepTime
    sequence_ns: int

    def step(self, batch: StepBatch) -> int:
        """Return the step's duration in ns."""
        return self.base.step(batch) + batch.decode_sequences * self.sequence_ns

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable | None:
        """Return the model as integers; None where the one below has no table."""
        table = self.base.table(max_tokens, max_sequences)
        if table is None:
            return None
        return replace(table, sequence_fs=table.sequence_fs + self.sequence_ns * _FS_PER_NS)
