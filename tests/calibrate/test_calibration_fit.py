"""The fit finds a known model again, keeps to the train files, and meets its error goals on rows held out."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.base.errors import TraceError, UsageError
from kvcache_sim.base.rng import stream
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate import design
from kvcache_sim.extras.calibrate.design import Form, form_for, padded_rows
from kvcache_sim.extras.calibrate.fit import chunk_base_ns, fit_step_time, predict_ms
from kvcache_sim.extras.calibrate.kernels import read_kernels, with_all_reduces, with_spreads
from kvcache_sim.extras.calibrate.rows import (
    TRAIN_FILES,
    IterationRows,
    check_train_file,
    held_out,
    phase_errors,
    read_iterations,
)
from kvcache_sim.extras.calibrate.shipped import SHIPPED, SWEPT, TRANSFERRED, shipped_rows
from kvcache_sim.extras.calibrate.transfer import SplitKv, fit_tensor_parallel
from kvcache_sim.model.catalog import read_entry
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.links import load_links
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_time_file import Provenance, model_text
from kvcache_sim.model.step_times import load_step_time, step_time_names
from processor import AS_PACKAGED
from support.docs_data import figures
from support.shared_files import ROOT, shared
from support.timed_rows import TRUE, random_rows, timed


def test_the_fit_finds_a_known_model_again():
    rows = random_rows(1000)
    model = fit_step_time(rows)
    assert model.kv_ms_per_thousand == pytest.approx(TRUE.kv_ms_per_thousand, rel=0.05)
    assert model.kv_mixed_ms_per_thousand == pytest.approx(TRUE.kv_mixed_ms_per_thousand, rel=0.05)
    fresh = random_rows(500)
    assert max(error.mape for error in phase_errors(fresh, predict_ms(model, fresh))) < 1.0


def test_prediction_reads_the_table_of_the_simulator():
    rows = random_rows(200)
    table = TRUE.table(8192, 256)
    for i, predicted in enumerate(predict_ms(TRUE, rows)):
        chunks = ((int(rows.prefill_tokens[i]), int(rows.past_tokens[i])),) if rows.prefill_tokens[i] else ()
        n, kv = int(rows.decode_sequences[i]), int(rows.decode_kv_tokens[i])
        exact = table.step(StepBatch(chunks, n, kv, kv // n if n else 0))
        assert predicted * 1e6 == pytest.approx(exact, abs=1.0)


#: Tokens and chunks of prompts, their past, decode sequences, KV of them, and of the longest.
STEPS = np.array(
    [(0, 0, 0, 3, 90, 30), (0, 0, 0, 7, 100, 60), (40, 1, 0, 0, 0, 0), (40, 2, 600, 0, 0, 0), (8, 2, 90, 5, 500, 200), (615, 3, 900, 9, 90, 10)],
    float,
)  # fmt: skip
FORMS = {
    "one base": Form((1.0, 8.0, 600.0), (), 16),
    "tiles": Form((1.0, 700.0), (), 16, least_kv_tokens=32, least_query_tokens=16),
    "two bases": Form((1.0, 40.0), (), 16, decode_knots=(1.0, 4.0, 16.0)),
    "measured": Form((), (), 16, measured=((1.0, 4.0), (300.0, 9.0))),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_matrix_times_coefficients_is_the_time_of_their_model(name):
    """No sequence alone and no scan: then a step's time is the sum of its columns."""
    form = FORMS[name]
    columns = [STEPS[:, at] for at in range(6)]
    rows = IterationRows(*columns, np.ones(len(STEPS)), np.ones(len(STEPS)))
    matrix = form.columns(rows)
    coefficients = 1 + np.arange(matrix.shape[1]) / 8
    coefficients[form.floors.scan[0] - 1 : form.floors.scan[0] + 1] = 0  # of forms that scan alone
    model = form.model(coefficients)
    expected = predict_ms(model, rows)
    if not (form.decode_knots or form.measured):
        assert matrix @ coefficients == pytest.approx(expected, rel=1e-4)
    for at, (new, chunks, past, n, kv, _) in enumerate(STEPS.tolist()):
        each = max(chunks, 1)
        pairs = each * (
            max(new / each, form.least_query_tokens * (new > 0)) * past / each + (new / each) ** 2 / 2
        )
        assert matrix[at, form.floors.pairs[0]] == pytest.approx(pairs / 1e6)
        assert matrix[at, form.floors.shared].tolist() == pytest.approx(
            [max(kv, form.least_kv_tokens * n) / 1e3 * holds for holds in (1, new > 0)]
        )


def test_a_chunk_with_any_past_has_the_base_of_those_with_a_past():
    tokens, rows = np.array([0, 1, 2]), SimpleNamespace(past_tokens=np.array([0.0, 1.0, 9.0]))
    table = SimpleNamespace(base_ns=np.array([10, 11, 12]), past_base_ns=np.array([20, 21, 22]))
    assert chunk_base_ns(table, tokens, rows).tolist() == [10, 21, 22]
    table.past_base_ns = np.zeros(0, np.int64)
    assert chunk_base_ns(table, tokens, rows).tolist() == [10, 11, 12]


def test_a_scan_reads_the_longest_kv_of_a_step_with_a_chunk():
    rows = IterationRows(*(STEPS[:, at] for at in range(6)), np.ones(len(STEPS)), np.ones(len(STEPS)))
    matrix = Form((1.0,), (1.0, 8.0, 16.0), 16, scans=True).columns(rows)
    floors = Form((1.0,), (1.0, 8.0, 16.0), 16, scans=True).floors
    longest = [
        max((new + past) / max(chunks, 1), most) / 1e3 * (new > 0) for new, chunks, past, _, _, most in STEPS
    ]
    assert matrix[:, floors.scan[0]] == pytest.approx(longest)
    alone = [most / 1e3 for *_, most in STEPS]
    assert matrix[:, floors.alone[0]] == pytest.approx(alone)
    assert (floors.rest(matrix.shape[1]).tolist(), matrix.shape[1]) == ([0, 6, 7, 9, 10], 12)


def test_the_longest_sequence_alone_is_found_where_it_shows():
    rows = random_rows(800)
    values = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    factor = 1 + 5 * stream(7, "uneven").random(len(rows))
    values |= {"decode_max_kv_tokens": rows.decode_max_kv_tokens * factor}
    true = ParametricStepTime(
        12.0, 0.04, 2.0, kv_ms_per_thousand=0.02, longest_points=((1.0, 0.2), (64.0, 0.2))
    )
    uneven = timed(IterationRows(**values), true)
    uneven = uneven.take(uneven.prefill_tokens == 0)
    model = fit_step_time(uneven)
    assert model.longest_points
    assert phase_errors(uneven, predict_ms(model, uneven))[0].mape < 1.5


def test_tiles_and_the_scan_are_found_where_they_show():
    rows = random_rows(800)
    true = replace(
        TRUE, least_kv_tokens=96, least_query_tokens=128, scan_ms_per_thousand=1.0, past_ms_per_thousand=0.0
    )
    mean = stream(7, "short").integers(1, 400, len(rows)) * (rows.decode_sequences > 0)
    values = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    values |= {"decode_kv_tokens": rows.decode_sequences * mean, "decode_max_kv_tokens": mean * 1.0}
    values |= {"prefill_tokens": np.where(rows.prefill_tokens > 0, 1 + rows.prefill_tokens % 300, 0)}
    known = timed(IterationRows(**values), true)
    model = fit_step_time(known)
    assert (model.least_kv_tokens, model.least_query_tokens) == (96, 128)
    assert model.scan_ms_per_thousand == pytest.approx(1.0, rel=0.05)
    assert max(error.mape for error in phase_errors(known, predict_ms(model, known))) < 0.5


def test_a_base_that_was_measured_is_kept():
    rows = random_rows(800)
    points = tuple(
        (float(n), float(ms))
        for n, ms in zip(range(1, 4200, 8), TRUE.base_ms(np.arange(1, 4200, 8)), strict=True)
    )
    model = fit_step_time(rows, points)
    assert [x for x, _ in model.base_points] == [x for x, _ in points]
    assert model.base_points[-1][1] - model.base_points[0][1] == pytest.approx(
        points[-1][1] - points[0][1], rel=1e-4
    )
    assert model.kv_ms_per_thousand == pytest.approx(TRUE.kv_ms_per_thousand, rel=0.02)


def test_what_decode_steps_take_more_is_found_where_the_base_was_measured():
    """0.8 ms of every pure decode step come out as such, and not as a part of the base."""
    points = tuple(
        (float(n), ms) for n, ms in zip(range(1, 4200, 8), TRUE.base_ms(np.arange(1, 4200, 8)), strict=True)
    )
    rows = random_rows(800)
    longer = replace(rows, iter_ms=rows.iter_ms + 0.8 * rows.phases()["decode"])
    model = fit_step_time(longer, points)
    assert model.decode_extra_ms == pytest.approx(0.8, abs=0.1)
    assert model.base_points[0][1] == pytest.approx(points[0][1], abs=0.1)
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


@pytest.mark.parametrize(
    ("counts", "knots"),
    [
        ({5: 30}, (5,)), ({100: 1, 108: 8}, (100, 108)), ({100: 9, 108: 7}, (100,)), ({100: 1, 107: 8}, (100,)),
        ({100: 1, 107: 8, 108: 1}, (100, 108)), ({1: 1, 10: 8, 20: 7}, (1, 20)), ({1: 1, 10: 8, 20: 8}, (1, 10, 20)),
        ({1: 1, 10: 8, 20: 4, 30: 4}, (1, 10, 30)), ({1: 1, 10: 3, 20: 5, 30: 7, 40: 1, 41: 2}, (1, 20, 41)),
    ],
)  # fmt: skip
def test_knots_have_eight_rows_and_a_distance_and_the_last_is_the_last_row(counts, knots):
    tokens = np.repeat([float(n) for n in counts], [*counts.values()])
    assert design._knots(tokens) == knots
    assert form_for(random_rows(50)).longest_knots == ()


@pytest.mark.parametrize(
    ("knots", "rows", "moved"),
    [
        ((1, 100, 300), [200] * 8, (1, 128, 129, 300)), ((1, 100, 300), [200] * 7 + [128] * 9, (1, 100, 300)),
        ((1, 100, 300), [128] * 9 + [129] * 8, (1, 128, 129, 300)), ((128, 300), [300] * 8, (128, 129, 300)),
        ((100, 300), [300] * 8, (100, 128, 129, 300)), ((1, 128, 300), [300] * 8, (1, 128, 129, 300)),
        ((1, 129), [129] * 8, (1, 129)), ((1, 129, 130), [130] * 8, (1, 128, 129, 130)), ((130, 200), [200] * 8, (130, 200)),
    ],
)  # fmt: skip
def test_a_knot_moves_to_the_largest_graph_where_eight_rows_are_beyond_it(knots, rows, moved):
    assert design._with_border(knots, 128, np.array(rows, float)) == moved


def test_a_family_over_tp_degrees_needs_two():
    with pytest.raises(UsageError, match="one TP degree"):
        fit_tensor_parallel(random_rows(100))


def test_the_split_is_fixed():
    mask = held_out(1000)
    assert mask.sum() == 216
    assert np.flatnonzero(mask)[:5].tolist() == np.flatnonzero(held_out(500))[:5].tolist()


def test_only_listed_files_may_be_fitted():
    """The end-to-end run that judges the RTX 4090 set, and any other run, is not among them."""
    assert {entry.file for entry in (*SHIPPED, *SWEPT, *TRANSFERRED)} <= set(TRAIN_FILES)
    for name in ("sharegpt_llama31_8b_300_b16.jsonl", "h100_host_overhead_runs.csv", "kv_transfer.csv"):
        with pytest.raises(UsageError, match="train split"):
            check_train_file(name)


def test_train_files_hold_no_end_to_end_figures(tmp_path):
    """A kernel or iteration file has neither request latencies nor the workload's prompt lengths."""
    for name in TRAIN_FILES:
        path = train_folder(tmp_path) / name
        import gzip

        text = gzip.decompress(path.read_bytes()).decode() if name.endswith(".gz") else path.read_text()
        header = text.split("\n", 1)[0].lower()
        assert not any(
            word in header for word in ("ttft", "tpot", "e2e", "makespan", "input_length", "arrival")
        )
        assert "sharegpt" not in text.lower()


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


def test_the_packaged_files_are_made_of_the_train_files_byte_for_byte(tmp_path):
    folder = train_folder(tmp_path)
    assert kvsim(["calibrate", "shipped", str(folder), "-o", str(tmp_path)]) == 0
    made = {path.name: path.read_bytes() for path in tmp_path.glob("*.toml")}
    assert set(made) == {f"{name}.toml" for name in step_time_names()}
    packaged = files("kvcache_sim.model") / "data" / "step_times"
    for name, data in made.items():
        # The sweep's set was fitted on AVX2, the others with AVX-512.
        if AS_PACKAGED and name not in {f"{entry.name}.toml" for entry in SWEPT}:
            assert (packaged / name).read_bytes() == data, name
        else:
            found, kept = load_step_time(str(tmp_path / name)), load_step_time(name.removesuffix(".toml"))
            apart = [abs(found.step(batch) / kept.step(batch) - 1) for batch in MANY_BATCHES]
            assert sum(apart) / len(apart) < 0.06, name


@pytest.mark.parametrize("name", [entry.name for entry in SHIPPED])
def test_every_shipped_set_states_errors_within_its_goals(name):
    """The files are made of the train files byte for byte, so what they state is what the fit reached."""
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


def test_a_sequence_is_read_by_as_many_cores_as_there_are_for_it():
    """148 cores: 8 heads of one sequence get 18 each, of 16 sequences one each, of 37 two turns."""
    kv, one = SplitKv(kv_heads=8, multiprocessors=148), np.ones(4)
    sequences = np.array([1.0, 8.0, 16.0, 37.0])
    assert kv.share(sequences, one) == pytest.approx([1 / 18, 1 / 2, 1, 2])
    assert kv.share(sequences, 2 * one) == pytest.approx([1 / 37, 1 / 4, 1 / 2, 1])
    assert kv.share(sequences, 8 * one).tolist() == kv.share(sequences, 64 * one).tolist()


def test_a_family_finds_what_a_degree_splits_and_what_it_does_not():
    """8 ms of weights and the KV are split; 3 ms, 20 µs a sequence and a core's rate for the longest are
    not."""

    def of(degree: int) -> IterationRows:
        rows, kv = random_rows(900, degree), SplitKv()
        rows = rows.take(rows.prefill_tokens == 0)
        n = padded_rows(rows, 512)[1]
        longest = 0.2 * kv.share(n, rows.tensor_parallel) * rows.decode_max_kv_tokens / 1e3
        attention = np.maximum(0.03 / degree * rows.decode_kv_tokens / 1e3, longest)
        return replace(rows, iter_ms=3 + 8 / degree + 0.02 * rows.decode_sequences + attention)

    parts = [of(degree) for degree in (1, 4)]
    known = IterationRows(
        *(np.concatenate([getattr(p, name) for p in parts]) for name in IterationRows.__dataclass_fields__)
    )
    for degree in (2, 8):
        unseen = of(degree)
        assert predict_ms(fit_tensor_parallel(known).model(degree), unseen) == pytest.approx(
            unseen.iter_ms, rel=0.02
        )


KERNELS = "kind,op,tokens,sequences,prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"


def kernel_lines(*more: str) -> str:
    lines = ["dense,mlp,1,,,,,,100", "dense,mlp,1,,,,,,300", "dense,mlp,65,,,,,,840", "dense,norm,33,,,,,,10"]
    lines += ["per_sequence,head,,1,,,,,10"]
    lines += [f"attention,a,,,0,0,{n},{kv},{n * kv / 8 + 5}" for n in (1, 2, 4) for kv in (16, 256, 1024)]
    return KERNELS + "\n".join((*lines, *more)) + "\n"


def test_kernels_are_summed_over_layers_their_repeats_averaged(tmp_path):
    """mlp: 200 µs at 1 token, 840 at 65, so 520 at 33; norm: 10; 32 layers; the head once."""
    path = tmp_path / "k.csv"
    path.write_text(kernel_lines())
    kernels = read_kernels(path, load_model("llama-3-8b"), {})
    assert kernels.tokens.tolist() == [1, 33, 65]
    assert kernels.dense_ms == pytest.approx([32 * 0.21, 32 * 0.53, 32 * 0.85])
    assert kernels.base_points()[0] == (1.0, pytest.approx(32 * 0.21 + 0.01))
    assert len(kernels.iterations(10**6)) == 9


@pytest.mark.parametrize("kind", ["dense", "per_sequence", "attention"])
def test_a_table_of_kernels_has_every_kind(tmp_path, kind):
    path = tmp_path / "k.csv"
    path.write_text("".join(line for line in kernel_lines().splitlines(True) if not line.startswith(kind)))
    with pytest.raises(TraceError, match="not a full kernel table"):
        read_kernels(path, load_model("llama-3-8b"), {})


def test_above_one_gpu_kernels_get_their_all_reduces(tmp_path):
    path = tmp_path / "k.csv"
    path.write_text(kernel_lines())
    model, gpu = load_model("llama-3-8b"), load_gpu("h100")
    kernels = read_kernels(path, model, {})
    assert with_all_reduces(kernels, model, gpu, 1, None).dense_ms.tolist() == kernels.dense_ms.tolist()
    more = with_all_reduces(kernels, model, gpu, 2, None).dense_ms - kernels.dense_ms
    assert more == pytest.approx(64 * load_links("nvlink-h100").ms(2, kernels.tokens * 4096 * 2))
    table = tmp_path / "links.csv"
    table.write_text("num_gpus,message_bytes,time_ms\n2,8192,0.5\n2,1000000000,0.5\n")
    mine = with_all_reduces(kernels, model, gpu, 2, load_links(str(table))).dense_ms - kernels.dense_ms
    assert mine == pytest.approx(64 * 0.5)


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


def test_a_short_chunk_fills_its_tile_in_the_batches_of_unequal_lengths_too(tmp_path):
    """8 tokens against 5,000 cost as much as 64, 3.2 ms in addition to the decodes' KV."""
    model = ParametricStepTime(
        kv_ms_per_thousand=1.0,
        kv_mixed_ms_per_thousand=2.0,
        pairs_ms_per_million=10.0,
        least_query_tokens=64,
    )
    lines = ["regime,pc,kp,n,kv_mean,kv_big,t_mean_us,t_skew_us", "pure,0,0,4,1000,3000,4000,4400"]
    for n, mean, big in ((4, 1000, 3000), (8, 500, 4000), (2, 2000, 3000)):
        even = 2 * n * mean + 10 * (64 * 5000 + 8 * 8 / 2) / 1e3
        lines.append(f"mixed,8,5000,{n},{mean},{big},{even},{even + 0.2 * n * (big - mean)}")
    path = tmp_path / "skew.csv"
    path.write_text("\n".join(lines) + "\n")
    found = with_spreads(model, path, {}, 20_000)
    assert (found.spread, found.spread_mixed) == (0.05, 0.1)


def test_predicted_rows_take_as_long_as_the_steps_of_a_run():
    """Kernels, or a launch and its tail where that is longer, of each kind; a chunk a step."""
    model = replace(
        TRUE, launch_ms=70.0, launch_pieces_ms=40.0, launch_graph_ms=20.0, launch_sequence_ms=0.31,
        tail_ms=3.7, tail_sequence_ms=0.17, graph_tokens=512,
    )  # fmt: skip
    rows = random_rows(400)
    table, launched = model.table(8192, 256), 0
    for k, ms in enumerate(predict_ms(model, rows)):
        new, n = int(rows.prefill_tokens[k]), int(rows.decode_sequences[k])
        chunks = ((new, int(rows.past_tokens[k])),) if new else ()
        batch = StepBatch(chunks, n, int(rows.decode_kv_tokens[k]), int(rows.decode_max_kv_tokens[k]))
        assert ms == pytest.approx(table.step(batch) / 1e6, rel=1e-6)
        launched += table.kernels(batch) < table.launch(batch)
    assert 50 < launched < 350
