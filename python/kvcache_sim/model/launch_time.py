"""A step-time model whose long steps take at least as long as the host needs to launch their kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcache_sim.model.step_time import StepBatch, StepTime, StepTimeTable

#: The most tokens of a step that a CUDA graph holds, unless an engine is told otherwise (vLLM v1's default).
CAPTURED_TOKENS = 512


@dataclass(frozen=True, slots=True)
class WithLaunchTime:
    """A model whose steps of more than ``captured_tokens`` tokens take at least ``launch_ns``.

    No CUDA graph holds these: the CPU launches each kernel, and a GPU that is done sooner waits for it.
    Models summed from kernels lack that time; those fitted to whole iterations have it.
    """

    base: StepTime
    launch_ns: int
    captured_tokens: int = CAPTURED_TOKENS

    def step(self, batch: StepBatch) -> int:
        """Return the step's duration in ns."""
        tokens = batch.decode_sequences + sum(new for new, _ in batch.prefill_chunks)
        own = self.base.step(batch)
        return max(own, self.launch_ns) if tokens > self.captured_tokens else own

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable | None:
        """Return the model as integers; None where the one below has no table."""
        table = self.base.table(max_tokens, max_sequences)
        if table is None:
            return None
        return replace(table, launch_ns=self.launch_ns, captured_tokens=self.captured_tokens)
