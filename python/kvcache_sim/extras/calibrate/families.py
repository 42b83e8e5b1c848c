"""The packaged families of topologies: fitted, judged on topologies left out, and written as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.extras.calibrate.rows import IterationRows, phase_errors
from kvcache_sim.extras.calibrate.runs import runs_of, seen_late, single_steps
from kvcache_sim.extras.calibrate.shipped import MIXTURE_FILE, MIXTURES, mixture_rows
from kvcache_sim.extras.calibrate.topologies import FEWEST
from kvcache_sim.extras.calibrate.transfer import Topology, TopologyFit, fit_topologies, of_sibling
from kvcache_sim.model.parametric import six_digits


@dataclass(frozen=True, slots=True)
class Family:
    """The measured topologies of a model, without compilation, and the family fitted to them."""

    measured: Mapping[Topology, IterationRows]
    fit: TopologyFit


def fit_family(measured: Mapping[Topology, IterationRows], sibling: Family | None = None) -> Family:
    """Return the family of a model's rows; with fewer than three topologies by the ratios of a sibling's."""
    rows = measured
    if sibling and len(measured) < FEWEST:
        rows = of_sibling(measured, sibling.measured, sibling.fit)
    return Family(measured, fit_topologies(rows))


def left_out(
    measured: Mapping[Topology, IterationRows], sibling: Family | None = None
) -> dict[Topology, dict[str, float]]:
    """Return the MAPE in % of each topology by phase, predicted from all others.

    All rows are judged, waiting ones too; of a topology whose steps are seen late the sums of runs.
    """
    errors = {}
    for topology, rows in measured.items():
        others = {other: measured_rows for other, measured_rows in measured.items() if other != topology}
        runs = runs_of(rows) if seen_late(rows) else single_steps(rows)
        found = runs.sums(predict_ms(fit_family(others, sibling).fit.model(topology), rows))
        errors[topology] = {error.phase: error.mape for error in phase_errors(runs.totals(rows), found)}
    return errors


def family_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the file text of each packaged family, fitted to the train file in ``folder``.

    The sibling of a model with few topologies is the first family.
    """
    first: Family | None = None
    for (gpu, model), mixtures in groupby(MIXTURES, lambda mixture: (mixture.gpu, mixture.model)):
        measured = {
            mixture_set.topology: mixture_rows(mixture_set, folder / MIXTURE_FILE)[0]
            for mixture_set in mixtures
        }
        family, errors = fit_family(measured, first), left_out(measured, first)
        known = [*measured, *(first.measured if first else ())]
        source = f"measured iterations of {', '.join(topology.suffix for topology in measured)}"
        source += ", other topologies by a sibling's ratios" if first else ""
        first = first or family
        lines = [
            f'model = "{model}"',
            f'gpu = "{gpu}"',
            f"gpus = {max(one.tensor_parallel * one.data_parallel for one in known)}",
            f'source = "{source}; {MIXTURE_FILE}"',
            "",
            "# The form's coefficients for each of `calibration.transfer.Topology.shares`.",
            "[costs]",
            *(f"{name} = {list(map(six_digits, costs))}" for name, costs in family.fit.costs.items()),
            "",
            "# Means over topologies left out: of one rank, of several.",
        ]
        for group, several in (("held_out", False), ("held_out_ranks", True)):
            own_errors = [error for one, error in errors.items() if (one.data_parallel > 1) is several]
            for phase in ("decode", "mixed"):
                mape = np.mean([error[phase] for error in own_errors])
                lines += [f"[{group}.{phase}]", f"mape_percent = {mape:.2f}"]
        yield f"{gpu}-{model}", "\n".join(lines) + "\n"
