"""Choice of the form of step times by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.extras.calibrate.fit import fit_step_time, predict_ms, with_mixed_kv
from kvcache_sim.extras.calibrate.rows import IterationRows, phase_errors
from kvcache_sim.extras.calibrate.transfer import fit_deployment
from kvcache_sim.model.gpus import UNMEASURED, KernelRates
from kvcache_sim.model.parametric import ParametricStepTime

#: Number of contiguous folds of each phase's rows, in the file's order; each is held out once.
FOLDS = 5
#: The choice uses at most this many rows; more rows change nothing and take seconds.
_MOST_ROWS = 1_000

#: The forms by name. Steps with a prompt's chunk have the base of decode steps, or a separate one: chunks are
#: launched kernel by kernel while decode steps replay a graph, which is most of a small mixture's time.
FORMS: dict[str, Callable[[IterationRows], ParametricStepTime]] = {
    "one base": fit_step_time,
    "bases apart": fit_deployment,
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """A fitted model, its form, and each form's error on held-out folds: the mean MAPE of phases in %."""

    model: ParametricStepTime
    form: str
    errors: dict[str, float]

    @property
    def how(self) -> str:
        """The form and the errors that decided the choice, as text."""
        errors = ", ".join(f"{name} {error:.1f} %" for name, error in self.errors.items())
        return f"{self.form} ({FOLDS} folds held out: {errors})" if errors else self.form


def fit_best(rows: IterationRows, rates: KernelRates = UNMEASURED) -> Chosen:
    """Return the fit of the form with the lowest error on held-out folds; the first one on a tie.

    A phase with fewer rows than folds is not evaluated. If decode steps or steps with a chunk are that few,
    separate bases cannot be fitted without a fold of them, and the first form is used. ``rates`` are the
    GPU's; their factor applies if no step mixes decodes with a chunk. About ten fits of a thousand rows: a
    second or two (needs scipy).
    """
    few = rows.take(spread_rows(rows, np.ones(len(rows), np.bool_), _MOST_ROWS))
    chunked = int((few.prefill_tokens > 0).sum())
    both = min(chunked, len(few) - chunked) >= FOLDS
    errors = {name: _fold_error(fit, few) for name, fit in FORMS.items()} if both else {}
    form = min(FORMS, key=lambda name: errors.get(name, 0.0))
    return Chosen(with_mixed_kv(FORMS[form](rows), rows, rates), form, errors)


def _fold_error(fit: Callable[[IterationRows], ParametricStepTime], rows: IterationRows) -> float:
    """Return the mean over the phases of the MAPE in % on each fold, fitted to the others."""
    fold, predicted = _folds(rows), np.zeros(len(rows))
    for number in range(FOLDS):
        out = fold == number
        predicted[out] = predict_ms(fit(rows.take(~out)), rows.take(out))
    errors = phase_errors(rows, predicted)
    return float(np.mean([error.mape for error in errors if error.rows >= FOLDS]))


def _folds(rows: IterationRows) -> NDArray[np.intp]:
    """Return the fold of each row within its phase."""
    fold = np.zeros(len(rows), np.intp)
    for mask in rows.phases().values():
        size = int(mask.sum())
        fold[mask] = np.arange(size) * FOLDS // max(size, 1)
    return fold


def spread_rows(rows: IterationRows, allowed: NDArray[np.bool_], count: int) -> NDArray[np.intp]:
    """Return ``count`` of the allowed rows, evenly spread over phases and file positions."""
    chosen: list[NDArray[np.intp]] = []
    phases = [np.flatnonzero(mask & allowed) for mask in rows.phases().values()]
    phases = sorted((of_phase for of_phase in phases if len(of_phase)), key=len)
    left = count
    for position, of_phase in enumerate(phases):
        share = min(len(of_phase), left // (len(phases) - position))
        chosen.append(of_phase[np.linspace(0, len(of_phase) - 1, share).astype(np.intp)])
        left -= share
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.intp)
