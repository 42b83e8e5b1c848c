"""Parts of a served step that sums of single kernels leave out: the sampler, and clocks under a power cap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.gpus import SUSTAINED_COMPUTE, GpuSpec, load_gpu
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.step_time import StepTime, StepTimeTable
from kvcache_sim.model.step_times import is_sum_of_kernels, measured_on

_NS_PER_MS, _FS_PER_MS = 1e6, 1e12
#: ms of the filters of vLLM's sampler on an H100 per million logits (rows × vocabulary). By a sort: the slope
#: of benches/measured/sampler.csv, whose constant is launches that an engine hides under the step. Triton:
#: the same of vLLM 0.20's kernel. Fused: of FlashInfer 0.7's, which draw as well.
FILTER_MS = {
    "sorting": {"top-k": 0.018, "top-p": 0.129, "top-k top-p": 0.131},
    "triton": {"top-k": 0.0097, "top-p": 0.027, "top-k top-p": 0.0103},
    "fused": {"top-k": 0.0089, "top-p": 0.0073, "top-k top-p": 0.0147},
}
#: Memory bandwidth of the H100 that the filters were timed on. Other GPUs' times are assumed to go with the
#: root of the ratio: 0.84 for an H200, where a sort takes 0.83 to 0.89, FlashInfer 0.74 to 0.81 and Triton
#: 0.9 to 1.0 of an H100's time.
_TIMED_ON_BYTES_PER_S = 3.35e12
#: Share of ``sustained_compute`` by the tokens of steps without a pause: up to 64 an H100 stays below its
#: power cap (benches/measured/sustained-gemms.csv).
CAPPED_SHARE = ((64, 0.0), (128, 0.1), (192, 0.46), (256, 0.55), (512, 1.0))
#: ms for which clocks stay up after steps below the cap (the same rows); the rest of a chunk has lower ones.
UNCAPPED_MS = 42.0
#: Decodes alongside chunks from which these find the clocks down (sustained-mixes.csv: 32 no, 128 yes).
CAPPED_DECODES = 256
_SLOPE_TOKENS = 8192


def clocks_measured(gpu: GpuSpec) -> bool:
    """Return True if ``sustained_compute`` of a GPU was measured, and is not the H100's by assumption."""
    return gpu.name == "h100" or gpu.sustained_compute != SUSTAINED_COMPUTE


def served_kernels(
    base: StepTime, name: str, model: ModelSpec, sampler: str = "", sustained: bool = True
) -> StepTime:
    """Return a source as it runs in an engine that serves ``model``; unchanged if no sum of kernels.

    ``sampler`` is one of ``FILTER_MS``; empty: requests ask for no filter.
    """
    gpu_name = measured_on(name).gpu
    if not is_sum_of_kernels(name) or gpu_name is None:
        return base
    try:
        gpu: GpuSpec | None = load_gpu(gpu_name)
    except UsageError:
        gpu = None  # a system that only the library knows
    factor = (SUSTAINED_COMPUTE if gpu is None else gpu.sustained_compute) if sustained else 1.0
    row_ms = 0.0
    if sampler and model.sampling:
        slower = 1.0 if gpu is None else (_TIMED_ON_BYTES_PER_S / gpu.memory_bytes_per_s) ** 0.5
        row_ms = slower * FILTER_MS[sampler][model.sampling] * model.vocab_size / 1e6
    dense = all(group.feed_forward is None or not group.feed_forward.experts for group in model.groups)
    return ServedKernels(base, factor, dense, row_ms) if factor > 1 or row_ms else base


class ServedKernels(Value, StepTime):
    """A sum of kernels with the filters of a sampler, at clocks under a sustained load.

    Compute-bound work takes ``sustained`` times as long once the power cap lowers the clocks: in a dense
    model's pure decode steps by their number of sequences, in a chunk from ``UNCAPPED_MS`` on, and in all of
    a chunk by the sequences that decode alongside, whose batch keeps the clocks down. Each sequence that
    decodes takes ``filter_ms`` more.
    """

    base: StepTime
    sustained: float
    is_dense: bool
    filter_ms: float = 0.0

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers."""
        table = self.base.table(max_tokens, max_sequences)
        more = self.sustained - 1
        decode = self._decode_ns(table)
        # A step of these sequences and one token of a chunk takes no less than the sequences alone.
        reached = CAPPED_SHARE[-1][0]
        least = np.maximum.accumulate(self._decode_ns(self.base.table(reached, reached)))
        before = np.minimum(np.arange(len(table.base_ns)) - 1, reached)
        base = np.maximum(_capped(table.base_ns, more), np.where(before < 0, 0, least[before]))
        # The slope is of one size, so that tables of other sizes have the same coefficient.
        slope = self.base.table(_SLOPE_TOKENS, 1).base_ns
        token_ns = float(slope[_SLOPE_TOKENS] - slope[_SLOPE_TOKENS // 2]) / (_SLOPE_TOKENS // 2)
        idle_fs = round(more * token_ns * 1e6 / CAPPED_DECODES)
        return replace(
            table,
            base_ns=base,
            decode_base_ns=decode,
            past_base_ns=_capped(table.past_base_ns, more),
            idle_fs=table.idle_fs + idle_fs,
            sequence_fs=table.sequence_fs + round(self.filter_ms * _FS_PER_MS),
        )

    def _decode_ns(self, table: StepTimeTable) -> NDArray[np.int64]:
        """Return the bases of pure decode steps at the clocks that their batch leaves."""
        if not self.is_dense:
            return table.decode_base_ns
        share = np.interp(np.arange(len(table.decode_base_ns)), *np.array(CAPPED_SHARE).T)
        later = np.rint((self.sustained - 1) * share * table.decode_base_ns).astype(np.int64)
        return np.asarray(table.decode_base_ns + later, np.int64)


def _capped(base_ns: NDArray[np.int64], more: float) -> NDArray[np.int64]:
    later = np.rint(more * np.maximum(base_ns - UNCAPPED_MS * _NS_PER_MS, 0)).astype(np.int64)
    return np.asarray(base_ns + later, np.int64)
