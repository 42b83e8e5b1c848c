"""Batches of unequal lengths: FlashAttention 2's threshold, and the one constant that is fitted to their rows.

The file's times are those of three runs of a kernel: at equal lengths they are 3.00 times the kernel tables'.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from kvcache_sim.extras.calibrate.csv_table import read_table
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.kernels import read_kernels, with_all_reduces
from kvcache_sim.extras.calibrate.rows import IterationRows
from kvcache_sim.extras.calibrate.shipped import SHIPPED
from kvcache_sim.extras.calibrate.unsplit_kv import HIDDEN_MEANS, unsplit_from
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kv_capacity import kv_capacity_bytes
from kvcache_sim.model.links import load_links
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import ParametricStepTime, parametric_step_time
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from support.docs_data import cells, figures
from support.shared_files import shared
from support.timed_rows import rows_of

#: The measured deployments, each with the share of decode steps that stood for unequal lengths before.
BEFORE = {
    "rtx4090-llama-3.1-8b-tp1": 0.036,
    "rtx-pro-6000-llama-3.1-8b-tp1": 0.024,
    "rtx-pro-6000-qwen3-32b-tp2": 0.023,
}
SEQUENCES = (2, 4, 8, 16, 32, 64, 128, 256)
RUNS = 3
_COLUMNS = ("n", "nb", "kvs", "kv_big", "t_mean_us", "t_skew_us")


@dataclass(frozen=True)
class Measured:
    """One deployment's pure decode batches of two lengths, and its packaged set."""

    model: ParametricStepTime
    rows: IterationRows
    long_sequences: np.ndarray
    ratio: np.ndarray
    fits: np.ndarray
    unsplit: np.ndarray


@cache
def measured(name: str) -> Measured:
    entry = next(entry for entry in SHIPPED if entry.name == name)
    spec, gpu, degree = load_model(entry.model), load_gpu(entry.gpu), entry.tensor_parallel
    kernels = read_kernels(shared("calibration/kernels_rtx.csv.gz"), spec, dict(entry.only))
    links = load_links(entry.links) if entry.links else None
    kernels = with_all_reduces(kernels, spec, gpu, degree, links)
    path = shared("calibration/attention_skew_rtx.csv.gz")
    table = read_table(path, _COLUMNS, {**dict(entry.only), "regime": "pure"})
    n, big, small, longest, even_us, uneven_us = (table.numbers(column) for column in _COLUMNS)
    total = big * longest + (n - big) * small
    ms = kernels.base_ms(n, n) + uneven_us / RUNS * spec.layers / 1e3
    decodes = {"decode_sequences": n, "decode_kv_tokens": total, "decode_max_kv_tokens": longest}
    rows, model = rows_of(len(n), **decodes, iter_ms=ms), load_step_time(name)
    fits = total <= kv_capacity_bytes(spec, gpu, degree) // spec.kv_bytes_per_token_per_gpu(degree)
    return Measured(model, rows, big, uneven_us / even_us, fits, n >= model.unsplit_sequences)


def fitted_means(without: int) -> float:
    """Return the multiple of the mean of least squared relative error of the attention, as for the shares.

    The rows have one long sequence, fit the memory, and are past the threshold; none has ``without`` sequences.
    """
    grid = np.arange(1, 4, 0.01)
    loss = np.zeros(len(grid))
    for own in map(measured, BEFORE):
        n, rows = own.rows.decode_sequences, own.rows
        chosen = own.unsplit & own.fits & (own.long_sequences == 1) & (n != without)
        kv_ms = own.model.kv_ms_per_thousand * rows.decode_kv_tokens / 1e3
        for at, means in enumerate(grid):
            alone = np.maximum(rows.decode_max_kv_tokens - means * rows.decode_kv_tokens / n, 0)
            ratio = 1 + own.model.unsplit_ms_per_thousand * alone / 1e3 / kv_ms
            loss[at] += np.square(ratio / own.ratio - 1)[chosen].sum()
    return float(grid[loss.argmin()].round(2))


def errors(n: int, change: Callable[[str], dict[str, float]]) -> np.ndarray:
    """Return the error in % of every step of ``n`` sequences with the changed sets."""
    found = []
    for name in BEFORE:
        own = measured(name)
        off = predict_ms(replace(own.model, **change(name)), own.rows) / own.rows.iter_ms - 1
        found.append(100 * np.abs(off[own.rows.decode_sequences == n]))
    return np.concatenate(found)


def test_numbers_of_sequences_left_out_are_met_as_the_page_says():
    every = []
    for n in SEQUENCES:
        means = fitted_means(without=n)
        assert means == pytest.approx(HIDDEN_MEANS, abs=0.15)
        now = errors(n, lambda _, means=means: {"unsplit_hidden": means})
        before = errors(n, lambda name: {"unsplit_sequences": 0, "spread": BEFORE[name]})
        rows, was, left_out, constant = figures("unequal-lengths", f"{n}")
        assert (rows, constant) == ([len(now)], [means])
        assert [*was, *left_out] == pytest.approx([before.mean(), now.mean()], abs=0.006)
        assert now.mean() <= 5.0
        every += now.tolist()
    rows, _, stated, _ = cells("unequal-lengths", "all")
    assert (rows, stated) == (f"{len(every)}", f"{np.mean(every):.2f}")
    assert np.mean(every) <= 2.0


def test_the_threshold_is_that_of_the_kernel():
    """Of 8 KV heads 26 sequences on 128 multiprocessors and 38 on 188; half the heads, twice as many."""
    assert [unsplit_from(8, tp, 128) for tp in (1, 2, 8, 16)] == [26, 52, 205, 205]
    assert [unsplit_from(8, tp, 188) for tp in (1, 2)] == [38, 76]
    assert [unsplit_from(4, tp, 188) for tp in (1, 2)] == [76, 151]
    for name in BEFORE:
        assert (load_step_time(name).unsplit_hidden, load_step_time(name).spread) == (HIDDEN_MEANS, 0.0)


def test_a_model_has_its_terms_on_figures_by_hand():
    """From 3 sequences on, padded to 4, so that 3 are enough; 2 ms per thousand tokens past twice the mean."""
    unsplit = {"unsplit_sequences": 4, "unsplit_ms_per_thousand": 2.0, "unsplit_hidden": 2.0}
    kv = {"kv_ms_per_thousand": 10.0, "kv_mixed_ms_per_thousand": 10.0}
    coefficients = {"base_points": [[1, 1.0], [100, 1.0]], **kv, **unsplit}
    model = parametric_step_time(coefficients, "f")
    table = model.table(100, 100)
    assert table.unsplit_sequences == 3
    assert table.step(StepBatch((), 2, 4000, 3900)) == 41_000_000
    assert table.step(StepBatch((), 3, 3000, 2000)) == 31_000_000
    assert table.step(StepBatch((), 3, 3000, 2500)) == 32_000_000
    assert table.step(StepBatch(((1, 0),), 3, 3000, 2500)) == 32_000_000
    assert model.table(2, 2).unsplit_sequences == 0
    capped = parametric_step_time({**coefficients, "unsplit_ms_per_thousand": 99.0}, "f").table(100, 100)
    lengths = [capped.step(StepBatch((), 3, 2500 + 2 * own, 2500)) for own in range(0, 2500, 50)]
    assert lengths == sorted(lengths)
