"""Iterations composed from kernel times, and the cost of unequal KV lengths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.extras.calibrate.csv_table import CsvTable, read_table
from kvcache_sim.extras.calibrate.rows import IterationRows
from kvcache_sim.model.gpus import GpuSpec
from kvcache_sim.model.links import AllReduces
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.parametric import ParametricStepTime, padded_tokens, six_digits
from kvcache_sim.model.points import Point, Points
from kvcache_sim.model.rank_work import Degrees, expert_layers, shared_points
from kvcache_sim.model.roofline import layer_all_reduces_ms

#: Kernels that run once per step, and norms, which run twice per layer; all others run once per layer.
_ONCE = ("embedding", "final_layernorm")
_TWICE = ("layernorm",)

#: The kind of a mixture's experts, on one GPU whatever the TP degree of other rows.
_EXPERTS = "moe"

_KINDS = ("dense", "per_sequence", "attention")
_ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """One GPU's kernels for one model: dense by tokens, head and sampler by sequences, attention by batch.

    ``attention`` has one row per measurement: tokens of the prefill chunk, its past, decode sequences, KV
    tokens of each, µs per layer. ``experts`` has a mixture's: tokens on a GPU, distinct experts that these
    reach, µs per layer; empty: the dense kernels are complete.
    """

    layers: int
    tokens: NDArray[np.float64]
    dense_ms: NDArray[np.float64]
    sequences: NDArray[np.float64]
    head_ms: NDArray[np.float64]
    attention: NDArray[np.float64]
    experts: NDArray[np.float64]

    def experts_ms(self, tokens: NDArray[np.float64], model: ModelSpec, gpus: int) -> NDArray[np.float64]:
        """Return the ms of a step's experts, spread over GPUs, at each count of all ranks' tokens.

        Tokens choose experts evenly and independently. A GPU has its share of the experts and of the pairs of
        a token and an expert. Between measured counts of tokens and of experts times are linear; a number of
        experts that few tokens cannot reach takes as long as at the least tokens that do.
        """
        layers, mlp = expert_layers(model)
        reached = mlp.experts / gpus * (1 - (1 - mlp.experts_active / mlp.experts) ** tokens)
        counts, numbers = (np.unique(self.experts[:, column]) for column in (0, 1))
        by_number = np.stack([self._at_number(number, counts) for number in numbers])
        tokens_each = np.maximum(tokens / gpus, 1.0)
        at = np.stack([np.interp(tokens_each, counts, row) for row in by_number])
        slope = (by_number[:, -1] - by_number[:, -2]) / (counts[-1] - counts[-2])
        at += slope[:, None] * np.maximum(tokens_each - counts[-1], 0.0)
        micros = [float(np.interp(n, numbers, column)) for n, column in zip(reached, at.T, strict=True)]
        return layers * np.array(micros) / 1e3

    def _at_number(self, number: float, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the µs at each count of tokens that reach this number of experts."""
        of_number = self.experts[self.experts[:, 1] == number]
        of_number = of_number[np.argsort(of_number[:, 0])]
        return np.asarray(np.interp(counts, of_number[:, 0], of_number[:, 2]), np.float64)

    def base_ms(self, tokens: NDArray[np.float64], sequences: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return all but attention, in ms: dense kernels at the padded token count, then head and sampler."""
        padded = padded_tokens(512, int(tokens.max()))[tokens.astype(np.int64)]
        dense = np.interp(padded, self.tokens, self.dense_ms)
        return dense + np.interp(sequences, self.sequences, self.head_ms)

    def base_points(self) -> Points:
        """Return (tokens, ms) of all but attention for one sequence, non-decreasing: the measured base."""
        base = np.maximum.accumulate(self.dense_ms) + self.head_ms[0]
        return tuple(
            Point(tokens, ms) for tokens, ms in zip(self.tokens.tolist(), base.tolist(), strict=True)
        )

    def iterations(self, capacity_tokens: int) -> IterationRows:
        """Return one iteration per measured attention batch that fits ``capacity_tokens`` of KV.

        A batch whose KV exceeds the memory is irrelevant to steps that can run.
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
    """Return the kernels with two all-reduces per layer over ``links`` (None: the GPU's).

    Tables do not include them. A single GPU needs none.
    """
    reduced = layer_all_reduces_ms(model, gpu, tensor_parallel, kernels.tokens, links)
    return replace(kernels, dense_ms=kernels.dense_ms + model.layers * reduced)


def with_experts(
    kernels: KernelTimes, model: ModelSpec, gpu: GpuSpec, degrees: Degrees, links: AllReduces | None
) -> tuple[KernelTimes, Points]:
    """Return the kernels with a mixture's experts, and (tokens of all ranks, ms) of what ranks share.

    Ranks have equal numbers of tokens, which are exchanged over ``links`` (None: the GPU's). Raises
    UsageError for ranks without measured experts.
    """
    ranks = degrees.data_parallel
    if not len(kernels.experts):
        if ranks > 1:
            raise UsageError(
                "no kernels of experts that ranks share", got=f"--dp {ranks}", expected="kind moe"
            )
        return kernels, ()
    total = kernels.tokens * ranks
    experts_ms = kernels.experts_ms(total, model, degrees.gpus)
    shared = shared_points(model, gpu, degrees, total, experts_ms, links) if ranks > 1 else ()
    more = np.array([ms for _, ms in shared]) if shared else experts_ms
    return replace(kernels, dense_ms=kernels.dense_ms + more), shared


def with_shared_apart(model: ParametricStepTime, shared: Points, ranks: int) -> ParametricStepTime:
    """Return a model of equally loaded ranks with its shared work apart from a rank's own base."""
    if not shared:
        return model
    tokens, ms = np.array(shared).T
    unshared = [(n, y - float(np.interp(n * ranks, tokens, ms))) for n, y in model.base_points]
    rising = np.maximum.accumulate([max(y, 0.0) for _, y in unshared]).tolist()
    base = tuple(Point(n, six_digits(y)) for (n, _), y in zip(unshared, rising, strict=True))
    return replace(model, base_points=base, shared_ranks=ranks, shared_points=shared)


def read_kernels(path: Path, model: ModelSpec, only: dict[str, str]) -> KernelTimes:
    """Return the kernels of a CSV whose rows have the values in ``only``.

    Columns: ``kind`` (``dense``, ``per_sequence``, ``attention``, ``moe``), ``op``, ``tokens``, ``sequences``
    and ``prefill_chunk``, ``kv_prefill``, ``n_decode``, ``kv_decode``, ``time_us`` (a layer, if it runs in
    each), ``activated_experts`` (of ``moe``, measured on one GPU). Raises UsageError or TraceError as
    ``read_iterations``.
    """
    table = read_table(path, ("kind", "op", "tokens", "sequences", *_ATTENTION, "time_us"), only)
    for row, kind in enumerate(table.cells["kind"]):
        if kind not in (*_KINDS, _EXPERTS):
            expected = "dense, per_sequence, attention or moe"
            raise TraceError("unknown kind of kernel", table.location(row), got=repr(kind), expected=expected)
    dense, per_sequence, batches = (
        table.take(np.array([row_kind == kind for row_kind in table.cells["kind"]], np.bool_))
        for kind in _KINDS
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
        experts=_experts(path, {key: value for key, value in only.items() if key != "tp"}),
    )


def _experts(path: Path, only: dict[str, str]) -> NDArray[np.float64]:
    """Return the rows of experts: tokens, experts reached, µs per layer. Other kernels have none."""
    table = read_table(path, ("kind", "tokens", "time_us"), only)
    found = table.take(np.array([kind == _EXPERTS for kind in table.cells["kind"]], np.bool_))
    if not len(found):
        return np.zeros((0, 3))
    columns = found.counts("tokens"), found.counts("activated_experts"), found.times("time_us")
    return np.stack(columns, axis=1)


#: µs by tokens or sequences; several values if it was measured more than once.
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
    """Return every measured count, and the ms of all kernels there, each multiplied by its number of runs.

    A kernel that was not measured at a count is interpolated linearly.
    """
    counts = np.array(sorted(set().union(*kernels.values())))
    total = np.zeros(len(counts))
    for op, timings in kernels.items():
        counts_timed = sorted(timings)
        total += (
            np.interp(counts, counts_timed, [float(np.mean(timings[n])) for n in counts_timed])
            * runs[op]
            / 1e3
        )
    return counts, total


_COLUMNS = ("pc", "kp", "n", "kv_mean", "kv_big", "t_mean_us", "t_skew_us")
_SHARES = np.arange(0, 0.5, 0.001)


def with_spreads(
    model: ParametricStepTime, path: Path, only: dict[str, str], capacity_tokens: int
) -> ParametricStepTime:
    """Return the model with the spread coefficients α of unequal lengths, for decode and for mixed steps.

    A model with ``unsplit_sequences`` has none for decode steps.

    Each is the α of least squared relative error of a batch's attention time, compared with the same batch
    with every sequence at the mean length, both for the model and as measured. Squares, since over a run the
    mean error adds up and the scatter does not. Only batches whose KV fits ``capacity_tokens`` count.
    Columns: ``regime`` (``pure`` or ``mixed``), ``pc`` and ``kp`` (new and past tokens of the chunk), ``n``
    decode sequences, ``kv_mean`` and ``kv_big`` (the longest), ``t_mean_us``, ``t_skew_us`` (unequal
    lengths). Raises TraceError if a regime has no row.
    """
    flat = replace(model, spread=0.0, spread_mixed=0.0)
    pure, mixed = (
        _share(flat, _rows(path, {**only, "regime": regime}, capacity_tokens)) for regime in ("pure", "mixed")
    )
    return replace(model, spread=0.0 if model.unsplit_sequences else pure, spread_mixed=mixed)


def _rows(path: Path, only: dict[str, str], capacity_tokens: int) -> NDArray[np.float64]:
    rows = read_table(path, ("regime", *_COLUMNS), only)
    table = np.stack([rows.numbers(name) for name in _COLUMNS], axis=1)
    table = table[table[:, 0] + table[:, 1] + table[:, 2] * table[:, 3] <= capacity_tokens]
    if not len(table):
        raise TraceError("no batches of unequal lengths", where=str(path), got=str(only))
    return np.asarray(table, np.float64)


def _share(model: ParametricStepTime, rows: NDArray[np.float64]) -> float:
    new, past, n, mean, longest, even_us, uneven_us = rows.T
    mixed = new > 0
    kv = np.where(mixed, model.kv_mixed_ms_per_thousand, model.kv_ms_per_thousand) / 1e3
    pairs = np.maximum(new, mixed * model.least_query_tokens) * past + new * new / 2
    shared = kv * np.maximum(n * mean, model.least_kv_tokens * n) + model.pairs_ms_per_million * pairs / 1e6
    extra = kv * (n * longest - n * mean)
    past_ms = model.past_ms_per_thousand * past / 1e3 * mixed

    def attention_ms(
        all_cores_ms: NDArray[np.float64], longest_tokens: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        scan_ms = model.scan_ms_per_thousand * np.maximum(new + past, longest_tokens) / 1e3 * mixed
        return np.asarray(np.maximum(all_cores_ms, scan_ms) + past_ms, np.float64)

    even_ms, measured = attention_ms(shared, mean), uneven_us / even_us
    errors = [
        np.square(attention_ms(shared + share * extra, longest) / even_ms / measured - 1).mean()
        for share in _SHARES
    ]
    return float(_SHARES[int(np.argmin(errors))].round(3))
