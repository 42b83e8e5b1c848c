"""What ``kvsim calibrate`` fits: one file's rows, split into those fitted and those judged on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.errors import TraceError, UsageError
from kvcache_sim.model.calibration.base import ErrorCurve, error_curve, fit_correction
from kvcache_sim.model.calibration.choice import fit_best
from kvcache_sim.model.calibration.csv_table import column_values, read_table
from kvcache_sim.model.calibration.fit import fit_runs, fit_step_time, predict_ms
from kvcache_sim.model.calibration.kernels import Points, read_kernels, with_all_reduces
from kvcache_sim.model.calibration.model_file import Provenance, model_text
from kvcache_sim.model.calibration.rows import IterationRows, held_out, phase_errors, read_iterations
from kvcache_sim.model.calibration.runs import SEEN_COLUMN, Runs, compiles, runs_of, seen_late, single_steps
from kvcache_sim.model.calibration.transfer import fit_tensor_parallel
from kvcache_sim.model.gpus import load_gpu
from kvcache_sim.model.kernel_rates import UNMEASURED
from kvcache_sim.model.kv_room import kv_room_bytes
from kvcache_sim.model.links import load_links
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.step_times import load_step_time, measured_on

#: Fewer rows cannot be split into those fitted and those judged on.
FEWEST_ROWS = 10


@dataclass(frozen=True, slots=True)
class Measured:
    """A file of measurements: which of its rows, and our names of the model and GPU they are of.

    ``model`` and ``gpu`` are needed for kernels only, whose times are a layer's; ``links`` are the
    all-reduces of kernels of several GPUs, those of the GPU unless named.
    """

    path: Path
    only: dict[str, str]
    model: str = ""
    gpu: str = ""
    links: str = ""


@dataclass(frozen=True, slots=True)
class FittedRows:
    """A model, the rows it never saw in their runs, the TP degree, and how it was made."""

    model: ParametricStepTime
    unseen: IterationRows
    runs: Runs
    tensor_parallel: int
    how: str

    def judged(self) -> tuple[IterationRows, NDArray[np.float64]]:
        """Return the runs it never saw as rows, and its time of each in ms."""
        return self.runs.totals(self.unseen), self.runs.sums(predict_ms(self.model, self.unseen))


def measured_rows(measured: Measured) -> tuple[IterationRows, Points]:
    """Return the iterations of a file, composed when it holds kernels (a column ``kind``), and their base.

    Kernels give a step's time without attention by itself; of iterations there is none.

    Raises UsageError when the chosen rows are of several models or GPUs, or when kernels come without the
    names of model and GPU.
    """
    values = column_values(measured.path, ("kind", "model", "gpu", "tp"), measured.only)
    for column in ("model", "gpu"):
        if len(values[column]) > 1:
            found = ", ".join(sorted(values[column]))
            hint = f"choose one with --only {column}=…"
            raise UsageError(f"rows of several values of {column}", str(measured.path), got=found, hint=hint)
    if not values["kind"]:
        return read_iterations(measured.path, measured.only), ()
    if not (measured.model and measured.gpu):
        raise UsageError("kernel times need --model and --gpu", hint="they give layers and memory")
    if len(values["tp"]) > 1:
        raise UsageError(
            "kernels of several TP degrees", str(measured.path), hint="choose one with --only tp=…"
        )
    model, gpu = load_model(measured.model), load_gpu(measured.gpu)
    degree = int((values["tp"] or {"1"}).pop())
    capacity_tokens = kv_room_bytes(model, gpu, degree) // model.kv_bytes_per_token_per_gpu(degree)
    links = load_links(measured.links) if measured.links else None
    kernels = with_all_reduces(read_kernels(measured.path, model, measured.only), model, gpu, degree, links)
    return kernels.iterations(capacity_tokens), kernels.base_points()


def rows_of_degree(measured: Measured, tensor_parallel: int | None) -> tuple[IterationRows, Points]:
    """Return a file's rows of one TP degree, and their base.

    Raises UsageError when there are several degrees and none is chosen.
    """
    rows, base = measured_rows(measured)
    degrees = np.unique(rows.tensor_parallel)
    found = ", ".join(f"{degree:g}" for degree in degrees)
    if tensor_parallel is None and len(degrees) > 1:
        hint = "choose one with --tp"
        raise UsageError("rows of several TP degrees", str(measured.path), got=found, hint=hint)
    wanted = degrees[0] if tensor_parallel is None else tensor_parallel
    if wanted not in degrees:
        raise UsageError(f"no rows of TP degree {wanted}", where=str(measured.path), got=found)
    return rows.take(rows.tensor_parallel == wanted), base


def fit_rows(measured: Measured, tensor_parallel: int | None) -> FittedRows:
    """Return the fit to four fifths of the rows of one TP degree.

    The form is the one that meets stretches held out best. Kernels have a base that was measured: no choice.
    Of an engine whose steps are seen late (a column ``seen_ms``, or decode steps that a chunk's launch makes
    long) these are runs of steps, met by their sums.
    """
    rows, base = rows_of_degree(measured, tensor_parallel)
    if len(rows) < FEWEST_ROWS:
        raise TraceError(
            "too few iterations to fit", str(measured.path), str(len(rows)), f"{FEWEST_ROWS} or more"
        )
    named = SEEN_COLUMN in read_table(measured.path, (), measured.only).cells
    late = not base and (named or seen_late(rows))
    runs = runs_of(rows) if late else single_steps(rows)
    out = held_out(len(runs))
    fitted, unseen = rows.take(runs.mask(~out)), rows.take(runs.mask(out))
    rates = load_gpu(measured.gpu).kernels if measured.gpu else UNMEASURED
    if late:
        model = fit_runs(fitted, runs.take(~out), rates)
        how = f"fitted to the sums of {len(runs)} runs of {len(rows)} steps"
    elif base:
        model, how = fit_step_time(fitted, base, rates), "fitted"
    else:
        chosen = fit_best(fitted, rates)
        model, how = chosen.model, f"fitted, {chosen.how}"
    return FittedRows(model, unseen, runs.take(out), int(rows.tensor_parallel[0]), how)


def transfer_rows(measured: Measured, tensor_parallel: int) -> FittedRows:
    """Return the model at a TP degree from the rows of all others; its own rows are the unseen ones."""
    rows, _ = measured_rows(measured)
    own = rows.tensor_parallel == tensor_parallel
    model = fit_tensor_parallel(rows.take(~own)).model(tensor_parallel)
    unseen = rows.take(own)
    how = "transferred from other TP degrees"
    return FittedRows(model, unseen, single_steps(unseen), tensor_parallel, how)


@dataclass(frozen=True, slots=True)
class CorrectedBase:
    """A source corrected by rows: its file, the errors by number of rows, and how many rows compile."""

    text: str
    curve: ErrorCurve
    dropped: int


def correct_base(measured: Measured, tensor_parallel: int | None, base: str, onto: str) -> CorrectedBase:
    """Return ``base``, or ``onto`` in its place, with its parts scaled by a file's rows of one TP degree.

    A fifth of the rows is held out for the errors. Rows of compilation are left out.
    """
    all_rows, _ = rows_of_degree(measured, tensor_parallel)
    dropped = compiles(all_rows)
    rows, source = all_rows.take(~dropped), load_step_time(base)
    if len(rows) < FEWEST_ROWS:
        raise TraceError("too few iterations", str(measured.path), str(len(rows)), f"{FEWEST_ROWS} or more")
    out = held_out(len(rows))
    correction = fit_correction(source, rows.take(~out))
    target = measured_on(onto or base)
    model = correction.apply(load_step_time(onto or base))
    unseen = rows.take(out)
    errors = [] if onto else phase_errors(unseen, predict_ms(model, unseen))
    how = f"{onto or base} corrected by {measured.path.name}" + (f" of {base}" if onto else "")
    provenance = Provenance(target.model or "", target.gpu or "", target.tensor_parallel, how)
    return CorrectedBase(
        model_text(model, provenance, errors), error_curve(source, rows, out), int(dropped.sum())
    )
