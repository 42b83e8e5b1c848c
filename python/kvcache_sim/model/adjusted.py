"""A step-time model with its times changed: least times of launches, time a sequence, factors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.step_time import StepTime, StepTimeTable

#: The most tokens of a step that a CUDA graph holds, unless an engine is told otherwise (vLLM v1's default).
CAPTURED_TOKENS = 512
_FS_PER_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class WithLaunchTime(StepTime):
    """A model whose steps of more than ``captured_tokens`` tokens take at least ``launch_ns``.

    No CUDA graph holds these: the CPU launches each kernel, and a GPU that is done sooner waits for it.
    Models summed from kernels lack that time; those fitted to whole iterations have it.
    """

    base: StepTime
    launch_ns: int
    captured_tokens: int = CAPTURED_TOKENS

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers."""
        table = self.base.table(max_tokens, max_sequences)
        return replace(table, launch_ns=self.launch_ns, captured_tokens=self.captured_tokens)


@dataclass(frozen=True, slots=True)
class WithSequenceTime(StepTime):
    """A model whose steps take ``sequence_ns`` more for each sequence that decodes in them.

    Below 0 it takes away: never more than the model has of its own, or more sequences would be faster.
    """

    base: StepTime
    sequence_ns: int

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers."""
        table = self.base.table(max_tokens, max_sequences)
        return replace(table, sequence_fs=table.sequence_fs + self.sequence_ns * _FS_PER_NS)


#: What is scaled: pure decode steps, steps with a chunk, the KV read in these, or the launch of long steps.
StepPart = Literal["decode", "chunk", "mixed_kv", "launch"]
#: The table's whole numbers that are multiplied with each part's factor.
_SCALED = {
    "decode": ("kv_decode_fs", "spread_decode_fs"),
    "chunk": ("pair_half_fs", "sequence_fs", "past_fs", "scan_fs", "idle_fs", "alongside_fs"),
    "kv_mixed": ("kv_mixed_fs", "spread_mixed_fs"),
    "launch": ("launch_ns", "pieces_launch_ns", "graph_launch_ns", "launch_sequence_ns"),
}


@dataclass(frozen=True, slots=True)
class ScaledStepTime(StepTime):
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
        return replace(self, **{part: factor})  # type: ignore[arg-type]

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers."""
        table = self.base.table(max_tokens, max_sequences)
        # A cost a sequence stands once in the table, for both kinds; the decode base takes the difference.
        padding_ms = (self.decode - self.chunk) * table.sequence_fs / 1e6
        sequences = np.arange(len(table.decode_base_ns))
        factors = {"decode": self.decode, "chunk": self.chunk, "launch": self.launch}
        factors["kv_mixed"] = self.chunk * self.mixed_kv
        whole: dict[str, Any] = {
            name: round(getattr(table, name) * factors[part])
            for part, names in _SCALED.items()
            for name in names
        }
        return replace(
            table,
            **whole,
            base_ns=_times(table.base_ns, self.chunk),
            past_base_ns=_times(table.past_base_ns, self.chunk),
            decode_base_ns=_times(table.decode_base_ns + padding_ms / self.decode * sequences, self.decode),
            longest_fs=_times(table.longest_fs, self.decode),
            residuals=table.residuals.times(self.decode, self.chunk),
        )


def _times(values: NDArray[np.int64] | NDArray[np.float64], factor: float) -> NDArray[np.int64]:
    return np.asarray(np.rint(values * factor), np.int64)
