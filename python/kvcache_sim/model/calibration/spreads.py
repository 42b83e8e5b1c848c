"""What unequal KV lengths cost: one share for pure decode steps, one for steps with a prefill chunk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError
from kvcache_sim.model.calibration.csv_table import read_table
from kvcache_sim.model.parametric import ParametricStepTime

_COLUMNS = ("pc", "kp", "n", "kv_mean", "kv_big", "t_mean_us", "t_skew_us")
_SHARES = np.arange(0, 0.5, 0.001)


def with_spreads(
    model: ParametricStepTime, path: Path, only: dict[str, str], capacity_tokens: int
) -> ParametricStepTime:
    """Return the model with the shares α that unequal lengths cost, for decode and for mixed steps.

    Each is the α of least squared relative error of a batch's attention beside that of the same batch with
    every sequence at the mean, both as the model has them and as measured: squares, since over a run the mean
    error adds up and the scatter does not. Only batches whose KV fits ``capacity_tokens`` count. Columns:
    ``regime`` (``pure`` or ``mixed``), ``pc`` and ``kp`` (new and past tokens of the chunk), ``n`` decode
    sequences, ``kv_mean`` and ``kv_big`` (the longest), ``t_mean_us``, ``t_skew_us`` (as it is).
    Raises TraceError when a regime has no row.
    """
    flat = replace(model, spread=0.0, spread_mixed=0.0)
    pure, mixed = (
        _share(flat, _rows(path, {**only, "regime": regime}, capacity_tokens)) for regime in ("pure", "mixed")
    )
    return replace(model, spread=pure, spread_mixed=mixed)


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
