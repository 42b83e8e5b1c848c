"""Packaged sets of step times: which rows each is fitted to and judged on, and what it says of itself."""

from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate import shipped
from kvcache_sim.extras.calibrate.rows import IterationRows
from kvcache_sim.extras.calibrate.shipped import MIXTURES, SHIPPED, SWEPT, TRANSFERRED
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.links import load_links
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.step_time_file import Provenance

# fmt: off


@pytest.mark.parametrize("late", [False, True])
def test_a_mixture_is_fitted_to_four_fifths_and_judged_on_the_rest(monkeypatch, late):
    """Steps of 10 ms; every seventh has a chunk, two compile, two wait; seen late, a chunk joins the step before."""
    ms = np.array([10 + k / 1000 for k in range(80)])
    ms[[20, 50]], ms[[33, 41]] = 900.0, 60.0
    chunk, ones = np.arange(80) % 7 == 3, np.ones(80)
    chunk[42] = True
    rows = IterationRows(1.0 * chunk, 1.0 * chunk, 0 * ones, ones, 50 * ones, 50 * ones, ones, ms)
    fitted, written, mixture = [], [], MIXTURES[6]
    stubs = {
        "read_iterations": lambda path, only: rows if only == {"model": "Qwen3.6-35B-A3B", "tp": "2", "ep": "4", "dp": "2"} else None,
        "seen_late": lambda _: late,
        "held_out": lambda count, share: np.arange(count) % 5 < 10 * share,
        "held_out_blocks": lambda count: np.isin(np.arange(count) % 10, [0, 2]),
        "fit_deployment": lambda own, runs: fitted.append((own.iter_ms.tolist(), runs.sums(own.iter_ms).tolist())),
        "predict_ms": lambda model, own: 2 * own.iter_ms,
        "phase_errors": lambda own, model_ms: [*zip(own.iter_ms, model_ms, strict=True)],
        "model_text": lambda *own: written.append(own) or "text",
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(shipped, name, stub)
    found = shipped.fit_mixture(mixture, Path("f"))
    kept = [k for k in range(80) if k not in (20, 50)]
    own, joins = ms[kept], [late and bool(chunk[row]) for row in kept]
    runs = [[n, *takewhile(lambda k: joins[k], range(n + 1, 78))] for n in range(78) if not joins[n]]
    block = [run for run in runs if run[0] % 10 in (0, 2)]
    single = [run for run in runs if run[0] % 5 == 0 and run not in block]
    alone = [run for run in block if own[run[0]] < 50 or any(chunk[kept][run])]
    rest = [run for run in runs if run not in block and run not in single]
    for errors, chosen in ((found.errors, single), (found.block_errors, block), (found.own_time_errors, alone)):
        sums = [sum(own[run]) for run in chosen]
        assert [own for pair in errors for own in pair] == pytest.approx([k * one for one in sums for k in (1, 2)])
    assert len(block) - len(alone) == 2 - late
    [(each, sums)] = fitted
    assert each == [own[n] for run in rest for n in run]
    assert sums == pytest.approx([sum(own[run]) for run in rest])
    assert (found.text, found.dropped, found.waiting) == ("text", 2, 2)
    how = "measured iterations of one rank" + ", seen late, by sums of runs" * late
    source = Provenance("qwen3.6-35b-a3b", "b300", 2, f"{how}, 2 of compilation left out; iter_b300_moe.csv.gz", 4, 2)
    assert written == [(None, source, found.errors, found.block_errors)]


class Rows:
    """Four rows of a file that say where they are from and which were taken."""

    tensor_parallel = np.array([8.0, 1.0, 2.0, 1.0])

    def __init__(self, *said):
        self.said = said

    def __len__(self):
        return 4

    def take(self, chosen):
        return Rows(*self.said, chosen.tolist())


def test_each_packaged_set_is_fitted_to_the_rows_that_are_not_held_out(monkeypatch, tmp_path):
    out, rest = [True, False, False, True], [False, True, True, False]
    stubs = {
        "held_out": lambda count: np.array(out[:count]),
        "read_iterations": lambda path, only=None: Rows(path, only),
        "read_kernels": lambda path, model, only: (path, model.name, only),
        "with_all_reduces": lambda kernels, *own: SimpleNamespace(iterations=lambda most: Rows(*kernels, *own, most), base_points=lambda: "base"),
        "kv_capacity_bytes": lambda model, gpu, tp: 10**12 * tp + 1,
        "fit_step_time": lambda rows, base, kernels: ("fit", rows.said, base, kernels),
        "predict_ms": lambda model, rows: ("ms", model[0], rows.said),
        "phase_errors": lambda rows, ms: [(getattr(rows, "said", rows), ms)],
        "with_unsplit_kv": lambda model, spec, gpu, tp: (model, "unsplit", spec.name, gpu, tp),
        "with_spreads": lambda model, path, only, most: (model, "spread", path.name, only, most),
        "fit_rows": lambda measured, tp: SimpleNamespace(model=(measured, tp), how="by sums", judged=lambda: ("runs", "times")),
        "fit_tensor_parallel": lambda rows: SimpleNamespace(model=lambda tp: ("degree", rows.said, tp)),
        "fit_mixture": lambda mixture, path: SimpleNamespace(text=(mixture.name, path), errors=["own"]),
        "model_text": lambda *own: own,
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(shipped, name, stub)
    texts = {name: (text, errors) for name, text, errors in shipped.shipped_texts(tmp_path)}
    assert len(texts) == len(SHIPPED) + len(SWEPT) + len(TRANSFERRED) + len(MIXTURES)
    for entry in SHIPPED:
        path, only, tp, kernels = tmp_path / entry.file, dict(entry.only), entry.tensor_parallel, load_gpu(entry.gpu).kernels
        said, expected = (path, only), ("fit", (path, only, rest), (), kernels)
        if entry.file.startswith("kernels"):
            model, links = load_model(entry.model), load_links("pcie5-vllm-0.19") if tp > 1 else None
            most = (10**12 * tp + 1) // model.kv_bytes_per_token_per_gpu(tp)
            said = (path, model.name, only, model, load_gpu(entry.gpu), tp, links, most)
            unsplit = ("fit", (*said, rest), "base", kernels), "unsplit", model.name, entry.gpu, tp
            expected = unsplit, "spread", "attention_skew_rtx.csv.gz", {"gpu": only["gpu"], "model": only["model"]}, most
        how = "measured iterations" if "b300" in entry.file else "composed of measured kernels"
        errors = [((*said, out), ("ms", "fit", (*said, out)))]
        source = Provenance(entry.model, entry.gpu, tp, f"{how}; {entry.file}")
        assert texts[f"{entry.gpu}-{entry.model}-tp{tp}"] == ((expected, source, errors), errors)
        assert only["tp"] == str(tp)
    (swept,), (moved,) = SWEPT, TRANSFERRED
    (measured, tp), source, errors = texts["h100-llama-3.1-8b-tp1"][0]
    assert (measured.path, measured.only, measured.model, measured.gpu, tp) == (tmp_path / swept.file, {"segment": "sweep"}, swept.model, "h100", 1)
    assert errors == [("runs", "times")] == texts[swept.name][1]
    assert source.source == f"measured iterations of a sweep on one machine (vLLM 0.25.1), by sums; {swept.file}"
    (model, source, errors), none = texts["b300-qwen3-32b-tp4"]
    assert model == ("degree", (tmp_path / moved.file, None, rest), 4)
    assert (source.source, errors, none) == (f"transferred from TP 1, 2, 8; {moved.file}", [], [])
    with pytest.raises(UsageError, match="not a file of the train split"):
        shipped.shipped_rows(replace(swept, file="other.csv"), tmp_path)
    for mixture in MIXTURES:
        assert texts[mixture.name] == ((mixture.name, tmp_path / "iter_b300_moe.csv.gz"), ["own"])
