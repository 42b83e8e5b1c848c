"""Batches of unequal lengths: FlashAttention 2's threshold, and the one constant that is fitted to their rows.

The file's times are those of three runs of a kernel: at equal lengths they are 3.00 times the kernel tables'.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from kvcache_sim.extras.calibrate.csv_table import read_table
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.kernels import read_kernels, with_all_reduces
from kvcache_sim.extras.calibrate.rows import IterationRows
from kvcache_sim.extras.calibrate.shipped import SHIPPED, ShippedSet, _capacity_tokens
from kvcache_sim.extras.calibrate.unsplit_kv import HIDDEN_MEANS, unsplit_from
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.links import load_links
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import ParametricStepTime, parametric_step_time
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from support.docs_data import cells, figures
from support.shared_files import shared

#: The measured deployments, each with the share of decode steps that stood for unequal lengths before.
BEFORE = {
    "rtx4090-llama-3.1-8b-tp1": 0.036,
    "rtx-pro-6000-llama-3.1-8b-tp1": 0.024,
    "rtx-pro-6000-qwen3-32b-tp2": 0.023,
}
SEQUENCES = (2, 4, 8, 16, 32, 64, 128, 256)
RUNS = 3
_COLUMNS = ("n", "nb", "kvs", "kv_big", "kv_mean", "t_mean_us", "t_skew_us")


@dataclass(frozen=True)
class Measured:
    """One deployment's pure decode batches of two lengths, and its packaged set."""

    model: ParametricStepTime
    rows: IterationRows
    long_sequences: np.ndarray
    ratio: np.ndarray
    fits: np.ndarray
    unsplit: np.ndarray

    def errors(self, model: ParametricStepTime) -> np.ndarray:
        """Return the error of each whole step in percent."""
        return 100 * (predict_ms(model, self.rows) / self.rows.iter_ms - 1)


def entry_of(name: str) -> ShippedSet:
    return next(entry for entry in SHIPPED if entry.name == name)


@cache
def measured(name: str) -> Measured:
    entry, spec = entry_of(name), load_model(entry_of(name).model)
    only = dict(entry.only)
    kernels = read_kernels(shared("calibration/kernels_rtx.csv.gz"), spec, only)
    links = load_links(entry.links) if entry.links else None
    kernels = with_all_reduces(kernels, spec, load_gpu(entry.gpu), entry.tensor_parallel, links)
    path = shared("calibration/attention_skew_rtx.csv.gz")
    table = read_table(path, _COLUMNS, {**only, "regime": "pure"})
    n, big, small, longest, _, even_us, uneven_us = (table.numbers(column) for column in _COLUMNS)
    total, none = big * longest + (n - big) * small, np.zeros(len(n))
    ms = kernels.base_ms(n, n) + uneven_us / RUNS * spec.layers / 1e3
    rows = IterationRows(none, none, none, n, total, longest, np.full(len(n), 1.0), ms)
    model = load_step_time(name)
    assert isinstance(model, ParametricStepTime)
    fits = total <= _capacity_tokens(entry)
    return Measured(model, rows, big, uneven_us / even_us, fits, n >= model.unsplit_sequences)


def fitted_means(without: int = 0, names=tuple(BEFORE)) -> float:
    """Return the multiple of the mean of least squared relative error of the attention, as for the shares.

    The rows have one long sequence, fit the memory, and are past the threshold; none has ``without`` sequences.
    """
    grid = np.arange(1, 4, 0.01)
    loss, count = np.zeros(len(grid)), 0
    for own in map(measured, names):
        n, rows = own.rows.decode_sequences, own.rows
        chosen = own.unsplit & own.fits & (own.long_sequences == 1) & (n != without)
        kv_ms = own.model.kv_ms_per_thousand * rows.decode_kv_tokens / 1e3
        for at, means in enumerate(grid):
            alone = np.maximum(rows.decode_max_kv_tokens - means * rows.decode_kv_tokens / n, 0)
            ratio = 1 + own.model.unsplit_ms_per_thousand * alone / 1e3 / kv_ms
            loss[at] += np.square(ratio / own.ratio - 1)[chosen].sum()
        count += int(chosen.sum())
    assert count >= 5
    return float(grid[loss.argmin()].round(2))


def by_sequences(errors: dict[str, np.ndarray], n: int) -> np.ndarray:
    return np.concatenate([each[measured(k).rows.decode_sequences == n] for k, each in errors.items()])


def test_the_threshold_is_that_of_the_kernel():
    """Of 8 KV heads 26 sequences on 128 multiprocessors and 38 on 188; half the heads, twice as many."""
    assert [unsplit_from(8, tp, 128) for tp in (1, 2, 8, 16)] == [26, 52, 205, 205]
    assert [unsplit_from(8, tp, 188) for tp in (1, 2)] == [38, 76]
    for name in BEFORE:
        assert measured(name).model.unsplit_hidden == HIDDEN_MEANS
        assert measured(name).model.spread == 0.0


def test_a_file_of_the_rows_has_three_runs_of_the_kernel():
    name = "rtx4090-llama-3.1-8b-tp1"
    entry, spec = entry_of(name), load_model("llama-3.1-8b")
    attention = read_kernels(shared("calibration/kernels_rtx.csv.gz"), spec, dict(entry.only)).attention
    path = shared("calibration/attention_skew_rtx.csv.gz")
    table = read_table(path, _COLUMNS, {**dict(entry.only), "regime": "pure"})
    n, mean, even_us = (table.numbers(column) for column in ("n", "kv_mean", "t_mean_us"))
    ratios = []
    for count in (64, 128, 256):
        own = attention[(attention[:, 0] == 0) & (attention[:, 2] == count)]
        own = own[np.argsort(own[:, 3])]
        ratios.extend(even_us[n == count] / np.interp(mean[n == count], own[:, 3], own[:, 4]))
    assert np.median(ratios) == pytest.approx(RUNS, abs=0.01)


def test_the_constant_is_that_of_the_rows_whatever_is_left_out():
    assert fitted_means() == pytest.approx(HIDDEN_MEANS, abs=0.05)
    for name in BEFORE:
        assert fitted_means(names=(name,)) == pytest.approx(HIDDEN_MEANS, abs=0.15)


@pytest.mark.parametrize("n", SEQUENCES)
def test_whole_numbers_of_sequences_left_out_are_met_as_the_page_says(n):
    means = fitted_means(without=n)
    now = {k: measured(k).errors(replace(measured(k).model, unsplit_hidden=means)) for k in BEFORE}
    before = {
        k: measured(k).errors(replace(measured(k).model, unsplit_sequences=0, spread=share))
        for k, share in BEFORE.items()
    }
    found = by_sequences(now, n)
    assert np.abs(found).mean() <= 5.0
    rows, was, left_out, constant = figures("unequal-lengths", f"{n}")
    assert rows == [len(found)]
    assert was == [pytest.approx(np.abs(by_sequences(before, n)).mean(), abs=0.006)]
    assert left_out == [pytest.approx(np.abs(found).mean(), abs=0.006)]
    assert constant == [means]


def test_all_rows_are_met_within_two_percent():
    assert sum(len(measured(name).rows) for name in BEFORE) == 984
    errors = [
        np.abs(measured(k).errors(replace(measured(k).model, unsplit_hidden=fitted_means(without=n))))[
            measured(k).rows.decode_sequences == n
        ]
        for k in BEFORE
        for n in SEQUENCES
    ]
    mean = np.concatenate(errors).mean()
    assert mean <= 2.0
    rows, _, stated, _ = cells("unequal-lengths", "all")
    assert (rows, stated) == ("984", f"{mean:.2f}")


@pytest.mark.parametrize(("degree", "first"), [(1, 76), (2, 151)])
def test_a_model_that_no_fit_reads_has_the_threshold_too(degree, first):
    """Qwen3-30B-A3B has 4 KV heads: the longest costs nothing before the threshold, and does after it."""
    assert unsplit_from(4, degree, 188) == first
    path = shared("calibration/attention_skew_rtx_moe.csv.gz")
    table = read_table(path, _COLUMNS, {"tp": str(degree), "regime": "pure"})
    n, big, _, longest, mean, even_us, uneven_us = (table.numbers(column) for column in _COLUMNS)
    per_thousand = {}
    for count in (32, 64, 128, 256):
        own = (n == count) & (big == 1) & (longest >= 4096)
        excess = (uneven_us - even_us)[own] / RUNS / (longest - mean)[own] * 1e3
        per_thousand[count] = float(np.median(excess))
    assert all((us > 5) == (count >= first) for count, us in per_thousand.items()), per_thousand
    assert all(abs(us) < 2 for count, us in per_thousand.items() if count < first)


def test_a_model_has_its_terms_on_figures_by_hand():
    """From 3 sequences on, padded to 4, so that 3 are enough; 2 ms per thousand tokens past twice the mean."""
    coefficients = {
        "base_points": [[1, 1.0], [100, 1.0]],
        "kv_ms_per_thousand": 10.0,
        "kv_mixed_ms_per_thousand": 10.0,
        "unsplit_sequences": 4,
        "unsplit_ms_per_thousand": 2.0,
        "unsplit_hidden": 2.0,
    }
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
