"""Adjusted step-time models: minimum launch times, time per sequence, factors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.values import Value
from kvcache_sim.model.step_time import StepTime, StepTimeTable

#: Most tokens of a step captured in a CUDA graph by default (vLLM v1).
CAPTURED_TOKENS = 512
_FS_PER_NS = 1_000_000


class WithLaunchTime(Value, StepTime):
    """A model whose steps of more than ``captured_tokens`` tokens take at least ``launch_ns``.

    These steps run without a CUDA graph: the CPU launches each kernel, and a GPU that finishes earlier waits
    for it. Models summed from kernels lack this time; models fitted to whole iterations include it. With
    ``eager_chunks`` no graph holds a chunk, so that steps with one take as long however short it is.
    """

    base: StepTime
    launch_ns: int
    captured_tokens: int = CAPTURED_TOKENS
    eager_chunks: bool = False

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers."""
        table = self.base.table(max_tokens, max_sequences)
        pieces_ns = self.launch_ns if self.eager_chunks else table.pieces_launch_ns
        captured = self.captured_tokens
        return replace(table, launch_ns=self.launch_ns, captured_tokens=captured, pieces_launch_ns=pieces_ns)


class WithExtraTime(Value, StepTime):
    """A model whose every step takes ``extra_ns`` more: kernels and gaps that a sum of kernels leaves out."""

    base: StepTime
    extra_ns: int

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers."""
        table = self.base.table(max_tokens, max_sequences)
        names = ("base_ns", "past_base_ns", "decode_base_ns")
        bases = {name: getattr(table, name).copy() for name in names}
        for base in bases.values():
            base[1:] += self.extra_ns
        return replace(table, **bases)


class WithSequenceTime(Value, StepTime):
    """A model whose steps take ``sequence_ns`` more for each decoding sequence.

    A negative value is limited to the model's own cost per sequence, so that more sequences are never faster.
    """

    base: StepTime
    sequence_ns: int

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers."""
        table = self.base.table(max_tokens, max_sequences)
        return replace(table, sequence_fs=table.sequence_fs + self.sequence_ns * _FS_PER_NS)


#: Parts that can be scaled: pure decode steps, steps with a chunk, KV reads in these, and launches of long
#: steps.
StepPart = Literal["decode", "chunk", "mixed_kv", "launch"]
#: The table's integers that are multiplied by each part's factor.
_SCALED = {
    "decode": ("kv_decode_fs", "spread_decode_fs", "unsplit_fs", "unsplit_hidden_fs"),
    "chunk": ("pair_half_fs", "sequence_fs", "past_fs", "scan_fs", "idle_fs", "alongside_fs"),
    "kv_mixed": ("kv_mixed_fs", "spread_mixed_fs"),
    "launch": ("launch_ns", "pieces_launch_ns", "graph_launch_ns", "launch_sequence_ns"),
}


class ScaledStepTime(Value, StepTime):
    """A model with pure decode steps scaled by ``decode`` and steps with a prefill chunk scaled by ``chunk``.

    ``mixed_kv`` additionally multiplies the cost of reading the decodes' KV in steps with a chunk. The lower
    bounds of the longest decode sequence, which both kinds of step share in the table, are scaled by
    ``decode``. ``launch`` multiplies the host's launch time of steps without a CUDA graph, which no other
    factor scales.
    """

    base: StepTime
    decode: float = 1.0
    chunk: float = 1.0
    mixed_kv: float = 1.0
    launch: float = 1.0

    def times(self, part: StepPart, factor: float) -> ScaledStepTime:
        """Return the model with one of its parts multiplied by this factor."""
        return replace(self, **{part: factor})  # type: ignore[arg-type]

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers."""
        table = self.base.table(max_tokens, max_sequences)
        # The table has one cost per sequence for both kinds of step; the decode base absorbs the difference.
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
            shared=table.shared.times(min(self.decode, self.chunk)),
        )


def _times(values: NDArray[np.int64] | NDArray[np.float64], factor: float) -> NDArray[np.int64]:
    return np.asarray(np.rint(values * factor), np.int64)
