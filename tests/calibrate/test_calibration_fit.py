"""The fit finds a known model again, keeps to the train files, and meets its error goals on rows held out."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate.fit import fit_step_time, predict_ms
from kvcache_sim.extras.calibrate.kernels import with_spreads
from kvcache_sim.extras.calibrate.rows import (
    TRAIN_FILES,
    IterationRows,
    check_train_file,
    phase_errors,
    read_iterations,
)
from kvcache_sim.extras.calibrate.shipped import SHIPPED, SWEPT, TRANSFERRED, shipped_rows
from kvcache_sim.extras.calibrate.transfer import fit_tensor_parallel
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_time_file import Provenance, model_text
from kvcache_sim.model.step_times import load_step_time, step_time_names
from support.docs_data import figures
from support.product.models import read_entry
from support.shared_files import ROOT, shared
from support.timed_rows import TRUE, random_rows, timed


def test_the_fit_finds_a_known_model_again():
    rows = random_rows(1000)
    model = fit_step_time(rows)
    assert model.kv_ms_per_thousand == pytest.approx(TRUE.kv_ms_per_thousand, rel=0.05)
    assert model.kv_mixed_ms_per_thousand == pytest.approx(TRUE.kv_mixed_ms_per_thousand, rel=0.05)
    fresh = random_rows(500)
    assert max(error.mape for error in phase_errors(fresh, predict_ms(model, fresh))) < 1.0


def test_tiles_and_the_scan_are_found_where_they_show():
    rows = random_rows(800)
    least = {"least_kv_tokens": 96, "least_query_tokens": 128}
    true = replace(TRUE, **least, scan_ms_per_thousand=1.0, past_ms_per_thousand=0.0)
    mean = stream(7, "short").integers(1, 400, len(rows)) * (rows.decode_sequences > 0)
    short = np.where(rows.prefill_tokens > 0, 1 + rows.prefill_tokens % 300, 0)
    kv = {"decode_kv_tokens": rows.decode_sequences * mean, "decode_max_kv_tokens": mean * 1.0}
    known = timed(replace(rows, prefill_tokens=short, **kv), true)
    model = fit_step_time(known)
    assert (model.least_kv_tokens, model.least_query_tokens) == (96, 128)
    assert model.scan_ms_per_thousand == pytest.approx(1.0, rel=0.05)
    assert max(error.mape for error in phase_errors(known, predict_ms(model, known))) < 0.5


def test_a_base_that_was_measured_is_kept_and_what_decode_steps_take_more_is_not_a_part_of_it():
    """0.8 ms of every pure decode step."""
    counts, rows = np.arange(1, 4200, 8), random_rows(800)
    points = tuple(zip(counts.astype(float).tolist(), TRUE.base_ms(counts).tolist(), strict=True))
    longer = replace(rows, iter_ms=rows.iter_ms + 0.8 * rows.phases()["decode"])
    for given, extra_ms in ((rows, 0.0), (longer, 0.8)):
        model = fit_step_time(given, points)
        (first, *_, last), (known, *_, end) = model.base_points, points
        assert [x for x, _ in model.base_points] == [x for x, _ in points]
        assert last[1] - first[1] == pytest.approx(end[1] - known[1], rel=1e-4)
        assert first[1] == pytest.approx(known[1], abs=0.1)
        assert model.decode_extra_ms == pytest.approx(extra_ms, abs=0.1)
        assert model.kv_ms_per_thousand == pytest.approx(TRUE.kv_ms_per_thousand, rel=0.02)
    assert fit_step_time(longer).decode_extra_ms == 0


def test_without_mixed_rows_their_kv_factor_is_assumed():
    rows = random_rows(600)
    unmixed = rows.take((rows.prefill_tokens == 0) | (rows.decode_sequences == 0))
    for gpu, factor in (("h100", 1.0), ("a100", 2.2)):
        model = fit_step_time(unmixed, rates=load_gpu(gpu).kernels)
        assert model.kv_mixed_ms_per_thousand == pytest.approx(factor * model.kv_ms_per_thousand, rel=1e-3)
    assert fit_step_time(unmixed).kv_mixed_ms_per_thousand == pytest.approx(
        fit_step_time(unmixed).kv_ms_per_thousand, rel=1e-3
    )


def test_only_listed_files_may_be_fitted():
    """The end-to-end run that judges the RTX 4090 set, and any other run, is not among them."""
    assert {entry.file for entry in (*SHIPPED, *SWEPT, *TRANSFERRED)} <= set(TRAIN_FILES)
    for name in ("sharegpt_llama31_8b_300_b16.jsonl", "h100_host_overhead_runs.csv", "kv_transfer.csv"):
        with pytest.raises(UsageError, match="train split"):
            check_train_file(name)


MANY_BATCHES = [StepBatch((), n, n * kv, kv) for n in (1, 4, 16, 64, 200) for kv in (500, 4000)]
MANY_BATCHES += [
    StepBatch(((new, past),), n, n * 1500, 1500)
    for new in (128, 512, 2048)
    for past in (0, 4096)
    for n in (0, 16, 64)
]


def train_folder(folder: Path) -> Path:
    """Return a folder with every train file: those of the shared calibration, and this project's sweep."""
    given = folder / "train"
    given.mkdir(exist_ok=True)
    for path in (*shared("calibration/README.md").parent.iterdir(), *(ROOT / "benches/measured").iterdir()):
        if path.name in TRAIN_FILES and not (given / path.name).exists():
            (given / path.name).symlink_to(path)
    return given


def test_the_packaged_sets_are_made_of_the_train_files(tmp_path):
    """Of the same rows, and as long as those kept: processors round otherwise, so a fit may take another corner."""
    folder = train_folder(tmp_path)
    assert kvsim(["calibrate", "shipped", str(folder), "-o", str(tmp_path)]) == 0
    made = {path.name.removesuffix(".toml"): path for path in tmp_path.glob("*.toml")}
    assert set(made) == set(step_time_names())
    for name, path in made.items():
        own, kept = tomllib.loads(path.read_text()), read_entry("step_times", "step time", name)
        said = (
            {key: value for key, value in one.items() if isinstance(value, str | int)} for one in (own, kept)
        )
        assert next(said) == next(said), name
        assert set(own) == set(kept), name
        found, packaged = load_step_time(str(path)), load_step_time(name)
        apart = [abs(found.step(batch) / packaged.step(batch) - 1) for batch in MANY_BATCHES]
        assert sum(apart) / len(apart) < 0.06, name


@pytest.mark.parametrize("name", [entry.name for entry in SHIPPED])
def test_every_shipped_set_states_errors_within_its_goals(name):
    held = read_entry("step_times", "step time", name)["held_out"]
    # Decodes of this set miss the goal: its head and sampler were timed on one GPU's share of the vocabulary.
    assert held["decode"]["mape_percent"] <= 2.0
    assert held["decode"]["p95_percent"] <= 6.0
    assert held.get("mixed", held["decode"])["mape_percent"] <= 6.0
    assert held.get("mixed", held["decode"])["p95_percent"] <= 20.0


def folds_mape(rows: IterationRows, folds: list, base=(), gpu: str = "b300") -> list[float]:
    """Return the MAPE in % of decode, mixed and prefill rows, each judged by a fit without its fold."""
    found = np.zeros(len(rows))
    for out in folds:
        model = fit_step_time(rows.take(~out), base, load_gpu(gpu).kernels)
        found[out] = predict_ms(model, rows.take(out))
    errors = {error.phase: error.mape for error in phase_errors(rows, found)}
    return [errors[phase] for phase in ("decode", "mixed", "prefill")]


def test_stretches_held_out_are_met_as_the_page_says():
    rows = read_iterations(shared("calibration/iter_b300_qwen3_32b.csv"), {"tp": "8"})
    span = np.arange(len(rows)) * 50 // len(rows)
    order = np.random.default_rng(0).permutation(50)
    met = folds_mape(rows, [np.isin(span, order[fold::5]) for fold in range(5)])
    (stated, *_) = figures("held-out-otherwise", "Qwen3-32B on B300, TP 8")
    assert met == pytest.approx(stated, abs=0.06)
    assert met[0] <= 2.3
    assert met[1] <= 5.0


def test_levels_of_the_grid_held_out_are_met_as_the_page_says():
    entry = next(entry for entry in SHIPPED if entry.name == "rtx-pro-6000-qwen3-32b-tp2")
    rows, base = shipped_rows(entry, shared("calibration/README.md").parent)
    each = rows.decode_max_kv_tokens
    levels = np.unique(each)
    met = folds_mape(rows, [np.isin(each, levels[fold::4]) for fold in range(4)], base, entry.gpu)
    (*_, stated) = figures("held-out-otherwise", "Qwen3-32B on RTX PRO 6000, TP 2")
    assert met == pytest.approx(stated, abs=0.06)


@pytest.mark.parametrize("left_out", [1, 2, 8])
def test_a_tp_degree_left_out_is_predicted(left_out):
    rows = read_iterations(shared("calibration/iter_b300_qwen3_32b.csv"))
    mask = rows.tensor_parallel == left_out
    model = fit_tensor_parallel(rows.take(~mask)).model(left_out)
    unseen = rows.take(mask)
    errors = {error.phase: error for error in phase_errors(unseen, predict_ms(model, unseen))}
    assert errors["decode"].mape <= 3.3
    assert errors["mixed"].mape <= 10.0
    stated = figures("tp-left-out", f"TP {left_out}")
    found = [[round(errors[p].mape, 2), round(errors[p].p95, 1)] for p in ("decode", "mixed")]
    assert stated == found


def test_a_model_file_reads_back_equal(tmp_path):
    model = fit_step_time(random_rows(400))
    path = tmp_path / "m.toml"
    path.write_text(model_text(model, Provenance("m", "g", 1, 'a "test"'), []))
    assert load_step_time(str(path)) == model


def test_shares_of_unequal_lengths_are_found_again_for_each_kind_of_step(tmp_path):
    """α is .05 in decode steps and .1 in steps with a chunk, where KV costs twice as much; a batch that is
    too large is left out."""
    model = ParametricStepTime(kv_ms_per_thousand=1.0, kv_mixed_ms_per_thousand=2.0)
    lines = ["regime,pc,kp,n,kv_mean,kv_big,t_mean_us,t_skew_us"]
    for regime, new, rate, alpha in (("pure", 0, 1.0, 0.05), ("mixed", 256, 2.0, 0.1)):
        for n, mean, big in ((4, 1000, 3000), (8, 500, 4000), (2, 2000, 3000)):
            even, uneven = rate * n * mean, rate * (n * mean + alpha * (n * big - n * mean))
            lines.append(f"{regime},{new},0,{n},{mean},{big},{even},{uneven}")
        lines.append(f"{regime},{new},0,100,1000,3000,1000,9000")
    path = tmp_path / "skew.csv"
    path.write_text("\n".join(lines) + "\n")
    found = with_spreads(model, path, {}, 20_000)
    assert (found.spread, found.spread_mixed) == (0.05, 0.1)
