"""The form of step times that `kvsim calibrate fit` takes: the form with the lower cross-validated error."""

from dataclasses import replace

import numpy as np
import pytest
from kvcache_sim.extras.calibrate.choice import FOLDS, FORMS, fit_best, spread_rows
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.rows import IterationRows, held_out, phase_errors, read_iterations
from kvcache_sim.extras.calibrate.runs import compiles
from kvcache_sim.extras.calibrate.shipped import MIXTURE_FILE, MIXTURES
from support.docs_data import figures
from support.shared_files import shared
from support.timed_rows import rows_of as steps_of

DENSE = {f"Qwen3-32B, TP {tp}": ("iter_b300_qwen3_32b.csv", {"tp": str(tp)}) for tp in (1, 2, 8)}
ALL = {**DENSE, **{mixture.name: (MIXTURE_FILE, mixture.only) for mixture in MIXTURES}}
SOME = ("Qwen3-32B, TP 1", "b300-qwen3.6-35b-a3b-tp2-ep2", "b300-qwen3.6-35b-a3b-tp8-ep8")


def rows_of(name: str) -> IterationRows:
    file, only = ALL[name]
    rows = read_iterations(shared(f"calibration/{file}"), only)
    return rows.take(~compiles(rows))


def mape(model, rows: IterationRows, phase: str) -> float:
    return next(e.mape for e in phase_errors(rows, predict_ms(model, rows)) if e.phase == phase)


def made(chunk_ms: float, count: int = 240) -> IterationRows:
    """Steps of 5 ms and 0.02 a sequence, and steps with a chunk that take so much more."""
    draw = np.random.default_rng(7)
    n = draw.integers(1, 65, count) * (np.arange(count) % 3 < 2)
    new = np.where(np.arange(count) % 3 > 0, draw.integers(16, 2048, count), 0)
    each = draw.integers(100, 4000, count) * (n > 0)
    ms = 5 + 0.02 * n + 0.01 * new + n * each * 1e-5 + np.where(new > 0, chunk_ms, 0)
    decodes = {"decode_sequences": n, "decode_kv_tokens": n * each, "decode_max_kv_tokens": each}
    return steps_of(count, prefill_tokens=new, prefill_requests=new > 0, iter_ms=ms, **decodes)


def test_chunks_that_cost_a_launch_of_their_own_get_a_base_of_their_own():
    chosen = fit_best(made(chunk_ms=40))
    assert chosen.form == "bases apart"
    assert 2 * chosen.errors["bases apart"] < chosen.errors["one base"]
    assert max(mape(chosen.model, made(chunk_ms=40), phase) for phase in ("decode", "mixed")) < 2


def test_its_errors_are_those_of_stretches_that_the_fit_never_saw():
    """Cross-validation in closed form: every phase's rows in five parts, each predicted by a fit to the
    other four."""
    rows = made(chunk_ms=10, count=90)
    found = fit_best(rows).errors
    for name, fit in FORMS.items():
        error = np.zeros(len(rows))
        for number in range(FOLDS):
            out = np.zeros(len(rows), np.bool_)
            for mask in rows.phases().values():
                own = np.flatnonzero(mask)
                out[own[len(own) * number // FOLDS : len(own) * (number + 1) // FOLDS]] = True
            unseen = rows.take(out)
            error[out] = 100 * np.abs(predict_ms(fit(rows.take(~out)), unseen) / unseen.iter_ms - 1)
        by_phase = [error[mask].mean() for mask in rows.phases().values() if mask.any()]
        assert found[name] == pytest.approx(np.mean(by_phase), rel=1e-6)


@pytest.mark.parametrize("kept", ["decode", "mixed", "prefill", "four chunks", "four decode steps", "ten"])
def test_without_rows_of_both_kinds_the_simpler_form_is_taken(kept):
    """Separate bases need decode steps and chunks, also in each fit that leaves a part out."""
    rows = made(chunk_ms=40)
    phases, number = rows.phases(), np.arange(len(rows))
    few = {
        **phases,
        "four chunks": phases["decode"] | ((number < 6) & ~phases["decode"]),
        "four decode steps": ~phases["decode"] | (number < 12),
        "ten": number < 10,
    }
    chosen = fit_best(rows.take(few[kept]))
    assert chosen.errors == {}
    assert chosen.how == chosen.form == "one base"


def test_a_phase_of_fewer_rows_than_stretches_is_not_judged():
    """Two prompts alone, timed a hundred times too long, are fitted but not counted."""
    rows = made(chunk_ms=40)
    phases, number = rows.phases(), np.arange(len(rows))
    few = rows.take(~phases["prefill"] | (number < 6))
    wrong = replace(few, iter_ms=np.where(few.phases()["prefill"], 100 * few.iter_ms, few.iter_ms))
    assert max(fit_best(wrong).errors.values()) < 30


@pytest.mark.parametrize("name", SOME)
def test_the_page_says_how_far_off_both_forms_are(name):
    rows = rows_of(name)
    out = held_out(len(rows))
    few, unseen = rows.take(spread_rows(rows, ~out, 300)), rows.take(out)
    one, apart, taken = figures("forms", name)[:3]
    for cell, fit in zip((one, apart), FORMS.values(), strict=True):
        model = fit(few)
        assert [mape(model, unseen, "decode"), mape(model, unseen, "mixed")] == pytest.approx(cell, abs=0.5)
    chosen = fit_best(few)
    assert taken == (one if chosen.form == "one base" else apart)
    assert mape(chosen.model, unseen, "mixed") < 5.2
