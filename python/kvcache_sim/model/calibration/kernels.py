"""Iterations composed from kernel times: what a step would take by its measured parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError
from kvcache_sim.model.calibration.csv_table import CsvTable, read_table
from kvcache_sim.model.calibration.rows import IterationRows
from kvcache_sim.model.cuda_graphs import padded_tokens
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.links import AllReduces
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.roofline import layer_all_reduces_ms

#: Kernels that run once a step; of the others, once a layer, the norm before attention and before the MLP.
_ONCE = ("embedding", "final_layernorm")
_TWICE = ("layernorm",)

#: (tokens, ms) of what a step takes without attention.
Points = tuple[tuple[float, float], ...]

_KINDS = ("dense", "per_sequence", "attention")
_ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """One GPU's kernels for one model: dense by tokens, head and sampler by sequences, attention by batch.

    ``attention`` has a row a measurement: tokens of the prefill chunk, its past, decode sequences, KV tokens
    of each, µs a layer.
    """

    layers: int
    tokens: NDArray[np.float64]
    dense_ms: NDArray[np.float64]
    sequences: NDArray[np.float64]
    head_ms: NDArray[np.float64]
    attention: NDArray[np.float64]

    def base_ms(self, tokens: NDArray[np.float64], sequences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return all but attention, in ms: dense kernels at the padded token count, then head and sampler."""
        padded = padded_tokens(512, int(tokens.max()))[tokens.astype(np.int64)]
        dense = np.interp(padded, self.tokens, self.dense_ms)
        return dense + np.interp(sequences, self.sequences, self.head_ms)

    def base_points(self) -> Points:
        """Return (tokens, ms) of all but attention for one sequence, made to rise: a step's measured base."""
        base = np.maximum.accumulate(self.dense_ms) + self.head_ms[0]
        return tuple((tokens, ms) for tokens, ms in zip(self.tokens.tolist(), base.tolist(), strict=True))

    def iterations(self, capacity_tokens: int) -> IterationRows:
        """Return one iteration a measured attention batch that fits ``capacity_tokens`` of KV.

        A batch whose KV could never be in memory says nothing about a step that will run.
        """
        chunk, past, n, kv, micros = self.attention.T
        fits = (n * kv + past + chunk <= capacity_tokens) & (chunk + n > 0)
        chunk, past, n, kv, micros = self.attention[fits].T
        sequences = n + (chunk > 0)
        return IterationRows(
            prefill_tokens=chunk,
            prefill_requests=(chunk > 0).astype(np.float64),
            past_tokens=past,
            decode_sequences=n,
            decode_kv_tokens=n * kv,
            decode_max_kv_tokens=np.where(n > 0, kv, 0.0),
            tensor_parallel=np.ones(len(chunk)),
            iter_ms=self.base_ms(chunk + n, sequences) + micros * self.layers / 1e3,
        )


def with_all_reduces(
    kernels: KernelTimes, model: ModelSpec, gpu: GpuSpec, tensor_parallel: int, links: AllReduces | None
) -> KernelTimes:
    """Return the kernels with two all-reduces a layer over ``links`` (None: the GPU's).

    Tables leave these out. One GPU needs none.
    """
    reduced = layer_all_reduces_ms(model, gpu, tensor_parallel, kernels.tokens, links)
    return replace(kernels, dense_ms=kernels.dense_ms + model.layers * reduced)


def read_kernels(path: Path, model: ModelSpec, only: dict[str, str]) -> KernelTimes:
    """Return the kernels of a CSV whose rows have the values in ``only``.

    Columns: ``kind`` (``dense``, ``per_sequence``, ``attention``), ``op``, ``tokens``, ``sequences``,
    ``prefill_chunk``, ``kv_prefill``, ``n_decode``, ``kv_decode``, ``time_us`` (a layer, where the kernel
    runs in each). Raises UsageError or TraceError as ``read_iterations`` does.
    """
    table = read_table(path, ("kind", "op", "tokens", "sequences", *_ATTENTION, "time_us"), only)
    for row, kind in enumerate(table.cells["kind"]):
        if kind not in _KINDS:
            expected = "dense, per_sequence or attention"
            raise TraceError("unknown kind of kernel", table.place(row), got=repr(kind), expected=expected)
    dense, per_sequence, batches = (
        table.take(np.array([own == kind for own in table.cells["kind"]], np.bool_)) for kind in _KINDS
    )
    ops, heads = _timings(dense, "tokens"), _timings(per_sequence, "sequences")
    attention = np.stack([*(batches.counts(name) for name in _ATTENTION), batches.times("time_us")], axis=1)
    if not (ops and heads and len(attention)):
        raise TraceError("not a full kernel table", where=str(path), got=str(only) if only else "")
    runs = {op: 1 if op in _ONCE else model.layers * (2 if op in _TWICE else 1) for op in ops}
    return KernelTimes(
        model.layers,
        *_summed(ops, runs),
        *_summed(heads, dict.fromkeys(heads, 1)),
        attention=attention,
    )


#: µs by tokens or sequences; several where it was measured more than once.
_Timings = dict[float, list[float]]


def _timings(table: CsvTable, by: str) -> dict[str, _Timings]:
    found: dict[str, _Timings] = {}
    counts, micros = table.counts(by).tolist(), table.times("time_us").tolist()
    for op, count, time_us in zip(table.cells["op"], counts, micros, strict=True):
        found.setdefault(op, {}).setdefault(count, []).append(time_us)
    return found


def _summed(
    kernels: dict[str, _Timings], runs: dict[str, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return every count measured, and the ms of all kernels there, each as often as it runs.

    A kernel that was not measured at a count is taken from its neighbours by a straight line.
    """
    counts = np.array(sorted(set().union(*kernels.values())))
    total = np.zeros(len(counts))
    for op, timings in kernels.items():
        own = sorted(timings)
        total += np.interp(counts, own, [float(np.mean(timings[n])) for n in own]) * runs[op] / 1e3
    return counts, total
