"""A step-time model with its times changed: least times of launches, time a sequence, factors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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


#: What is scaled: pure decode steps, steps with a chunk, the KV read in these, or the launch of long steps.
StepPart = Literal["decode", "chunk", "mixed_kv", "launch"]


@dataclass(frozen=True, slots=True)
class ScaledStepTime:
    """A model with pure decode steps ``decode`` times as long and steps with a prefill chunk ``chunk`` times.

    ``mixed_kv`` besides multiplies what reading the decodes' KV costs in steps with a chunk. The floor of the
    longest decode sequence, which both kinds of step share in the table, is scaled by ``decode``. ``launch``
    multiplies the host's time to launch what no CUDA graph holds, which no other factor touches.
    """

    base: StepTime
    decode: float = 1.0
    chunk: float = 1.0
    mixed_kv: float = 1.0
    launch: float = 1.0

    def times(self, part: StepPart, factor: float) -> ScaledStepTime:
        """Return the model with one of its parts by this factor."""
        match part:
            case "decode":
                return replace(self, decode=factor)
            case "chunk":
                return replace(self, chunk=factor)
            case "mixed_kv":
                return replace(self, mixed_kv=factor)
            case "launch":
                return replace(self, launch=factor)

    def step(self, batch: StepBatch) -> int:
        """Return the step's duration in ns, as ``table`` gives it."""
        tokens = batch.decode_sequences + sum(new for new, _ in batch.prefill_chunks)
        size = 1 << max(tokens, 512).bit_length()
        found = self.table(size, size)
        return found.step(batch) if found is not None else round(self.base.step(batch) * self.chunk)

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable | None:
        """Return the model as integers; None where the scaled one has no table."""
        table = self.base.table(max_tokens, max_sequences)
        if table is None:
            return None
        # A cost a sequence stands once in the table, for both kinds; the decode base takes the difference.
        given_back = (self.decode - self.chunk) * table.sequence_fs / 1e6
        sequences = np.arange(len(table.decode_base_ns))
        kv_mixed = self.chunk * self.mixed_kv
        return replace(
            table,
            base_ns=_times(table.base_ns, self.chunk),
            past_base_ns=_times(table.past_base_ns, self.chunk),
            decode_base_ns=_times(table.decode_base_ns + given_back / self.decode * sequences, self.decode),
            pair_half_fs=round(table.pair_half_fs * self.chunk),
            kv_decode_fs=round(table.kv_decode_fs * self.decode),
            kv_mixed_fs=round(table.kv_mixed_fs * kv_mixed),
            sequence_fs=round(table.sequence_fs * self.chunk),
            past_fs=round(table.past_fs * self.chunk),
            spread_decode_fs=round(table.spread_decode_fs * self.decode),
            spread_mixed_fs=round(table.spread_mixed_fs * kv_mixed),
            scan_fs=round(table.scan_fs * self.chunk),
            idle_fs=round(table.idle_fs * self.chunk),
            beside_fs=round(table.beside_fs * self.chunk),
            longest_fs=_times(table.longest_fs, self.decode),
            rests=table.rests.times(self.decode, self.chunk),
            launch_ns=round(table.launch_ns * self.launch),
            pieces_launch_ns=round(table.pieces_launch_ns * self.launch),
            graph_launch_ns=round(table.graph_launch_ns * self.launch),
            launch_sequence_ns=round(table.launch_sequence_ns * self.launch),
        )


def _times(values: NDArray[np.int64] | NDArray[np.float64], factor: float) -> NDArray[np.int64]:
    return np.asarray(np.rint(values * factor), np.int64)
