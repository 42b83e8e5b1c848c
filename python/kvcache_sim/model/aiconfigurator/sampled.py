"""A table made of another source's times: the bases of decode steps and of others are that source's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_time import StepBatch, StepTimeTable


@dataclass(frozen=True, slots=True)
class SampledStepTime:
    """The coefficients fitted to a source, and what is to be said about it, a line each.

    Unlike in a fitted set the base of decode steps may exceed that of others at the same count, and KV may
    cost less beside a chunk: some sources have it so. Each is monotone by itself.
    """

    model: ParametricStepTime
    facts: tuple[str, ...] = ()

    def step(self, batch: StepBatch) -> int:
        """Return the step's duration in ns, as ``table`` gives it."""
        tokens = batch.decode_sequences + sum(new for new, _ in batch.prefill_chunks)
        size = 1 << max(tokens, 512).bit_length()
        return self.table(size, size).step(batch)

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers, for steps of up to ``max_tokens`` and ``max_sequences``."""
        model = self.model
        others = replace(model, decode_points=()).table(max_tokens, max_sequences)
        decode = replace(model, base_points=model.decode_points, decode_points=())
        mixed = replace(model, kv_ms_per_thousand=0.0, decode_points=()).table(max_tokens, max_sequences)
        return replace(
            others,
            decode_base_ns=decode.table(max_tokens, max_sequences).decode_base_ns,
            kv_mixed_fs=mixed.kv_mixed_fs,
        )
