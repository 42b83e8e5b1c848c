"""How far predictions are from measurements: mean and 95th percentile of the relative error, by phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.model.calibration.rows import IterationRows


@dataclass(frozen=True, slots=True)
class PhaseError:
    """The relative error of one phase in per cent: mean of |e|, 95th percentile of |e|, mean of e."""

    phase: str
    rows: int
    mape: float
    p95: float
    bias: float


def phase_errors(rows: IterationRows, predicted_ms: NDArray[np.float64]) -> list[PhaseError]:
    """Return the errors of each phase that has rows (percentile: linear interpolation)."""
    error = 100 * (predicted_ms / rows.iter_ms - 1)
    return [
        PhaseError(
            phase,
            int(mask.sum()),
            float(np.abs(error[mask]).mean()),
            float(np.percentile(np.abs(error[mask]), 95)),
            float(error[mask].mean()),
        )
        for phase, mask in rows.phases().items()
        if mask.any()
    ]
